"""Pictures of a result, by the conventions of arviz-plots."""
