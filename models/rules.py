"""In what Kafka's versions differ, as far as the model has it: found by `harness conform`, read in the jars."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rules:
    """What holds in one version.

    ``last_of_pass_stays``: the batch that ends where a pass does stays, empty at least (``Cleaner``, up to 4.3); else
    the one that ends at the high watermark does (4.4).
    ``stable_at_batch``: a transaction that is open from before the log start holds the last stable offset at the first
    offset of the batch there, which may be less than the log start (``LogSegment.read``, from 4.0 on); else at the log
    start itself.
    """

    last_of_pass_stays: bool = True
    stable_at_batch: bool = False


def rules_of(version: str) -> Rules:
    """Return the rules of a version such as 4.4.0. Raises ValueError for what is none."""
    major, minor = (int(part) for part in version.split(".")[:2])
    return Rules(last_of_pass_stays=(major, minor) < (4, 4), stable_at_batch=(major, minor) >= (4, 0))
