"""A causal LM that is fed, read and rolled back, and the law of its next token."""
