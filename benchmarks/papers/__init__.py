"""The experiments of the papers, and one that sets all methods beside their peers."""
