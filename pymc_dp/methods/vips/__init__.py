"""VIPS: variational Bayes from perturbed expected sufficient statistics."""
