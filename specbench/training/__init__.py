"""Training of drafts: a small model, or a head on the target's hidden states."""
