"""From a result to the flags of the engine that is to serve it."""
