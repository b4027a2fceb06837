"""Blocks of latents with conjugate priors, and what a prior says about them."""
