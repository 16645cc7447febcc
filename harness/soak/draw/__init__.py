"""Draw a round from a seed, and reduce it to the operations that matter."""
