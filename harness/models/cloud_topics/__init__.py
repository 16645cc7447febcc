"""Compaction of Cloud Topics: one shared copy of a log, immutable objects in a store, and metadata that list them.

The source of every rule is Redpanda's post ("the post" in this package: Cloud Topics, compaction). Where the post
leaves a question open, the docstring of the function that had to decide says so ("Decided here").

* ``metastore``: the objects of a log, its cleaned ranges, and how an update is accepted or refused.
* ``compaction``: the bounded map from keys to their latest offsets, and one pass.
* ``cloud``: the engine, with the order in which workers get logs; a runner drives it with its own clock.
* ``rules``: the rules by name, each of which can be switched off; ``judge``: the invariants;
  ``world``: every interleaving of a small case, with the same functions as the engine.

Not modelled: the L0 layer, which has resolved idempotency and transactions before batches reach L1; multipart uploads
of an object; garbage collection of objects (a reader always gets an object that it has looked up); DeleteRecords and
retention by time or size; clocks that differ between the metastore and compactors; brokers' caches of metadata;
failures of the metastore itself, whose updates are assumed to be atomic and durable.
"""
