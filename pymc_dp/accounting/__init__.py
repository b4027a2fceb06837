"""What may be released and what it costs: plans, accountants and calibration."""
