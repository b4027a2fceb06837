"""Attacks on whole fits, and what they prove about epsilon."""
