"""Posterior draws themselves as releases: dp_sgld and dp_ops."""
