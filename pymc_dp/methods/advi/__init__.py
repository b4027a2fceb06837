"""Private variational inference by noisy gradients."""
