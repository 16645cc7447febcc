"""Everything that can happen to a cluster, as data: operations of clients, administrators, faults and the environment.

Nothing here acts: players do (`harness.play`, `harness.soak.play`, `harness.models.world.steps`), and each declares
which operations it supports. An operation without a topic concerns every partition of its schedule.
"""
