"""The noise with which releases keep to a budget: a search, whose result is accounted for anew."""
