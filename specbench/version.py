"""The package's version, in one place that needs no import of anything heavy."""

VERSION = "0.1.0"
