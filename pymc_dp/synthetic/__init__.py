"""Synthetic data: models of whole tables, draws of data sets, and rules that combine these."""
