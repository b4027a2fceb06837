"""Checks of fits: by what they released, and by further private releases."""
