"""Stochastic expectation propagation for Gaussian mixtures."""
