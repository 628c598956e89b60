"""Prompts, from a file, a package or the hub to token ids."""
