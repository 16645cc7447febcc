"""One run: boot a cluster, write, stop brokers, restart them, collect the evidence.

`run_plan` resolves the options and has the schedule, `run` owns the processes and files, `run_player` plays the
schedule, `resume` continues a run. `harness.judge` decides about the evidence.
"""
