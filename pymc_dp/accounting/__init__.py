"""What may be released and what it costs: plans and accountants."""
