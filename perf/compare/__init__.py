"""A training step of another program, timed in turns with ours on the same cores."""
