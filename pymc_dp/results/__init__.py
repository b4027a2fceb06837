"""Results: the tree that a fit returns, what may be saved of it, its report and summary."""
