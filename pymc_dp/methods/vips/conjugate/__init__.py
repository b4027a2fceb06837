"""VIPS for conjugate models and finite mixtures of them."""
