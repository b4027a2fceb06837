"""VIPS for factor models and belief networks."""
