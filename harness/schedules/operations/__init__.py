"""Everything that can happen to a cluster, as data: operations of clients, administrators, faults and the environment.

Players perform operations (`harness.play`, `harness.soak.play`, `harness.models.world.steps`), and each player declares
which it supports. An operation without a topic concerns every partition of its schedule.
"""

from harness.schedules.operations import administrators, clients, environment, faults, waits  # noqa: F401  (registered)
