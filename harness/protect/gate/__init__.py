"""The gate: a Java agent that keeps a broker's cleaner from a partition while an assigned replica is out of the ISR.

Its sources are in ``java/``: `harness.protect.gate.build` compiles them, `harness.protect.gate.verify` tries the result
on the classes of any version, and `harness.protect.gate.events` reads what it writes to a broker's log. How a run uses
it is in `harness.play`.
"""
