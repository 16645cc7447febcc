"""Protection against divergence, and the cure: the gate, the guard and repair."""
