"""`harness explore`: models of compaction, explored without a broker and without waiting for a clock.

Whole state spaces, judged by the model's own state. A finding can be replayed on real brokers
(`harness.schedules.replay`). The models are in `models`.
"""
