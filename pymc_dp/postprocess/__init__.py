"""Computations on released results: predictions, perplexity, reconstructions."""
