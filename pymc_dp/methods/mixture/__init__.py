"""Mixtures of Gaussian components, and a private start that misses none of them."""
