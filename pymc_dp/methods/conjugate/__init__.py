"""Blocks of latents with conjugate priors, and the natural parameters of their priors."""
