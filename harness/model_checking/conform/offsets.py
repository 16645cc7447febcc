"""The offsets of a schedule's group, as its coordinator answers them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.kafka_api.error_names import UNSTABLE_OFFSET
from harness.kafka_api.groups import NO_OFFSET as NONE
from harness.kafka_api.groups import fetch_offsets_of_groups
from harness.model_checking.conform.picture import NO_OFFSET, UNSTABLE, FetchedOffset
from harness.model_checking.conform.simulated import ALL_KEYS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.kafka_api.messages import Caller


def fetch_offsets(coordinator: Caller, groups: Sequence[str]) -> dict[str, tuple[FetchedOffset, ...]]:
    """Return OffsetFetch's answers of a broker about groups, with ``require_stable`` and without.

    A group that the broker does not coordinate, or not yet, is left out. Raises OSError.
    """
    partitions = [(name, 0) for name in sorted(ALL_KEYS)]
    stable, current = (
        coordinator.ask(fetch_offsets_of_groups(dict.fromkeys(groups, partitions), require_stable=is_stable))
        for is_stable in (True, False)
    )
    return {
        group: tuple(FetchedOffset(tp[0], _text(stable[group][tp]), _text(current[group][tp])) for tp in partitions)
        for group in stable.keys() & current.keys()
    }


def _text(answer: int | str) -> str:
    return {NONE: NO_OFFSET, UNSTABLE_OFFSET: UNSTABLE}.get(answer, str(answer))
