"""What a run is made of before anything runs: data only.

Scenarios, timers, placement of replicas, and schedules that replay one interleaving. What the plan is carried out
on is in `harness.targets` and `harness.runtimes`; who carries it out is `harness.play`.
"""
