"""VIPS for topic models."""
