"""`harness explore`: models of compaction, explored without a broker and without waiting for a clock.

Whole state spaces, or many random runs, each judged by the checkers and by the model itself. A finding can be
replayed on real brokers (`harness.schedules.replay`). The models are in `models`.
"""
