"""Results beside each other, and against limits."""
