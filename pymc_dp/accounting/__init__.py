"""What may be released and what it costs: plans, samplers, accountants, a search for noise."""
