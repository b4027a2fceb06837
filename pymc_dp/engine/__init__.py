"""Rounds: a private posterior of any model, from noisy scores and curvatures."""
