"""Differentially private Bayesian inference for PyMC."""

__version__ = "0.1.0"
