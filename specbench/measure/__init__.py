"""What loads models and measures: sweeps, scoring, predictions, maps, checks of a machine."""
