"""The state space of a small cluster under faults, and the rules of a gate in the broker (`harness/protect/gate`).

`harness.models.walk.state_space` has the space without these faults; cleaners, replicas and clients are the same.
"""
