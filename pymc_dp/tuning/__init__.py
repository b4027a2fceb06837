"""Private selection among settings."""
