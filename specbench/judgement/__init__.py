"""What the numbers of a result mean: verdicts, reasons, warnings."""
