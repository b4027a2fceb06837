"""Tables and formulas as they come: what is known of them before they are arrays of a model."""
