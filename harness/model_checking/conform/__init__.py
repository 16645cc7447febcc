"""Does the model behave like real brokers? A schedule is played on both, with a comparison after every step.

``schedules`` are sequences of the operations that `harness.models.world.steps` performs. ``picture`` plays a schedule
there, and has the content and state of one replica in a form for both; ``brokers`` plays it on a real cluster, a
``partition`` each. ``conform`` runs many schedules on one cluster, and compares both pictures after each step.
Schedules of consumer groups are played in partitions of ``__consumer_offsets``, and their pictures have the answers
of the coordinator.

Not compared, because the schedule does not determine them: times (of horizons only whether there is one), coordinator
epochs (they count elections of another log), codecs and headers. Not covered: a leader that loses unreplicated records,
brokers that run out of space, an empty disk, ``min.compaction.lag.ms``, keys that do not fit into the cleaner's
offset map, segments that are full (they roll by time here), and a recovery that begins anywhere but at the start of the
log.
"""
