"""One run: boot a cluster, write, take brokers away, bring them back, collect the evidence.

`start` and `resume` assemble a run, `lifecycle` owns its processes and files, `runner` has its phases.
How the evidence is judged is in `harness.judge`.
"""
