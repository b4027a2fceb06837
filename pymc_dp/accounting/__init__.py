"""What may be released and what it costs: plans, accountants, a search for noise."""
