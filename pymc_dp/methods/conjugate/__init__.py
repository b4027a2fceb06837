"""Blocks of latents with conjugate priors."""
