"""The gate: a Java agent that keeps a broker's cleaner from a partition while an assigned replica is out of the ISR.

Its sources are in ``java/``. `harness.protect.gate.build` compiles them, and tries the jar on the classes of a version;
`harness.protect.gate.events` reads its lines in a broker's log. Runs use it by `harness.play`.
"""
