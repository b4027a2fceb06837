"""Algorithms to the letter of their papers: the registry loads one when it is asked for."""
