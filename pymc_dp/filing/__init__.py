"""Records of a result that can be filed: text, JSON, a public registry and output checking."""
