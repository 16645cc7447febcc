"""The state space of a small cluster under faults, and the rules of a gate in the broker (`harness/protect/gate`)."""
