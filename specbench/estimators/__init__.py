"""Estimates from counts, times and scored texts, with their intervals and tests."""
