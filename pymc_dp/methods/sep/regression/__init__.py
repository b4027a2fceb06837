"""Stochastic expectation propagation for likelihoods of one linear predictor."""
