"""One run: boot a cluster, write, take brokers away, bring them back, collect the evidence.

`run_plan` resolves the options, `run` owns the processes and files, `outage` has the phases, `resume` continues a run.
How the evidence is judged is in `harness.judge`.
"""
