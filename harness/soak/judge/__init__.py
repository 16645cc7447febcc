"""From the evidence of a round to its verdict."""
