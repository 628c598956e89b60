"""Whether the output law is the target's: the checks of `specbench verify`."""
