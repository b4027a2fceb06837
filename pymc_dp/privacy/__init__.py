"""What touches data: the wall, clipping, secret randomness, and the contract of contributions."""
