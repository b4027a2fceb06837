"""What may be released and what it costs: plans, samplers, accountants and calibration."""
