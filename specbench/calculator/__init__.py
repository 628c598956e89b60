"""`specbench theory`: closed forms and counters, without a model."""
