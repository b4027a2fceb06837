"""Private stochastic expectation propagation."""
