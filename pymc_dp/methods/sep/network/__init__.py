"""Stochastic expectation propagation for Bayesian networks."""
