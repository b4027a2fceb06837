"""Algorithms to the letter of their papers, for reproduction: only the registry imports them."""
