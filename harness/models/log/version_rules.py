"""Differences between Kafka's versions that the model has: found by `harness conform`, confirmed in the jars."""

from dataclasses import dataclass


@dataclass(frozen=True)
class VersionRules:
    """The rules of one version.

    ``last_of_pass_stays``: the batch that ends where a pass ends stays, at least as an empty batch (``Cleaner``, up to
    4.3); else the batch that ends at the high watermark stays (4.4).
    ``stable_at_batch``: a transaction that is open from before the log start holds the last stable offset at the first
    offset of the batch there, which may be less than the log start (``LogSegment.read``, from 4.0 on); else at the log
    start itself.
    ``tombstone_drops_pending``: where a group coordinator loads its log, a tombstone drops the pending offsets of its
    key, too (``OffsetMetadataManager``, the new coordinator, from 4.0 on); else only the committed offset
    (``GroupMetadataManager``, the old coordinator, which 3.9 uses by default).
    """

    last_of_pass_stays: bool = True
    stable_at_batch: bool = False
    tombstone_drops_pending: bool = False


def rules_of(version: str) -> VersionRules:
    """Return the rules of a version such as 4.4.0. Raises ValueError for a string that is not a version."""
    major, minor = (int(part) for part in version.split(".")[:2])
    is_new = (major, minor) >= (4, 0)
    return VersionRules((major, minor) < (4, 4), is_new, is_new)
