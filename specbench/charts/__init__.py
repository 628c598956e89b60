"""Charts of results, the same for every format."""
