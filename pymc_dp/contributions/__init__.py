"""What one record contributes to a release: its norm, and the weighted sum over a batch."""
