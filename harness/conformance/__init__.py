"""Does the model do what real brokers do? One schedule, two interpreters, and a comparison after every step.

``steps`` says what may happen, ``schedules`` what does; ``simulated`` takes a schedule over ``models``, ``brokers``
over a real cluster; ``picture`` is what one replica holds and believes, whoever has it; ``lockstep`` takes many
schedules through one cluster, a topic each, and looks after each step whether both pictures are the same.

Not compared, because the schedule does not decide it: times (of horizons only whether there is one), coordinator
epochs (they count elections of another log), codecs and headers. Not gone through: a leader that loses what nobody
copied, brokers that run out of space, an empty disk, ``min.compaction.lag.ms``, keys that do not fit into the cleaner's
offset map, segments that are full (they roll by time here), and a recovery that begins anywhere but at the start of the
log.
"""
