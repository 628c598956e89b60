"""Laws of tokens: the tests of one against another, and the faults that they find."""
