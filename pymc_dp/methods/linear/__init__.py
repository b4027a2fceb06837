"""Likelihoods of one linear predictor, and the Gaussian posterior of its coefficients."""
