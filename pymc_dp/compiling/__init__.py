"""Graphs as functions, on compiled backends; equal graphs are rewritten once."""
