"""What speculative decoding gives when every tested draft is kept independently at one α."""
