"""Compaction of Cloud Topics: one shared copy of a log, immutable objects in a store, and metadata that name them.

The source of every rule is Redpanda's post on it ("the post" in this package: Cloud Topics, compaction). Where it
leaves something open, the docstring of the function that had to decide says so.

* ``metastore``: which objects a log consists of, what of it is clean, and how an update is accepted or refused.
* ``keymap``: the bounded map from keys to their latest offsets; ``compaction``: one pass; ``ranges``: its arithmetic.
* ``scheduler``: which log a worker gets next; ``cloud``: the engine that a runner drives, by a clock that it is given.
* ``rules``: the rules by name, each of which can be switched off; ``judge``: what must never be;
  ``world``: every interleaving of a small case, over the same functions that the engine runs.

Not modelled: the L0 layer, which has resolved idempotency and transactions before anything gets here; the part-wise
upload of an object; garbage collection of objects (a reader always gets what it has looked up); DeleteRecords and
retention by time or size; clocks that differ between the metastore and compactors; brokers' caches of metadata;
failures of the metastore itself, whose updates are taken to be atomic and durable.
"""
