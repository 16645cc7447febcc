"""A schedule's group on real brokers: the requests by which its offsets are committed, deleted and fetched.

A step's key is the name of an input topic with one partition, and what it writes is the offset of that partition. The
group has no members: commits have no member id, and generation -1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kafka.protocol.consumer import OffsetDeleteRequest, OffsetFetchRequest
from kafka.protocol.producer import AddOffsetsToTxnRequest, TxnOffsetCommitRequest

from harness.kafka_api.groups import commit_request
from harness.kafka_api.wire import error_name
from harness.model_checking.conform.picture import NO_OFFSET, UNSTABLE, FetchedOffset
from harness.model_checking.conform.simulated import ALL_KEYS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from harness.kafka_api.replica import Caller
    from harness.model_checking.conform.producer import Identity, RequestAndCodes

NO_GENERATION, NO_MEMBER, NO_EPOCH, NONE = -1, "", -1, -1
TXN_COMMIT: Final = {1: 3, 2: 5}
"""Request versions by which a broker knows the transaction version of a client (KIP-890)."""


@dataclass(frozen=True)
class OffsetRequests:
    """Implements `producer.Requests` for the offsets of a group; a value is the offset's digits."""

    group: str

    def register(self, identity: Identity) -> RequestAndCodes:
        """Add the group's partition of ``__consumer_offsets`` to a transaction."""
        request = AddOffsetsToTxnRequest[3](
            transactional_id=identity.transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            group_id=self.group,
        )
        return request, lambda answer: [answer.error_code]

    def write(self, identity: Identity, records: Sequence[tuple[bytes, bytes | None]], _: int) -> RequestAndCodes:
        """Commit an offset, in a transaction or not, or delete it."""
        ((key, value),) = records
        if value is None:
            return self._delete(key.decode())
        if identity.transactional_id is not None:
            return self._commit_in_transaction(identity, key.decode(), int(value))
        return self._commit(key.decode(), int(value))

    def _commit(self, name: str, offset: int) -> RequestAndCodes:
        return commit_request(self.group, {(name, 0): offset}), _codes

    def _commit_in_transaction(self, identity: Identity, name: str, offset: int) -> RequestAndCodes:
        Topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic  # noqa: N806
        partition = Topic.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_leader_epoch=NO_EPOCH, committed_metadata=""
        )
        request = TxnOffsetCommitRequest[TXN_COMMIT[identity.version]](
            transactional_id=identity.transactional_id,
            group_id=self.group,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            generation_id=NO_GENERATION,
            member_id=NO_MEMBER,
            group_instance_id=None,
            topics=[Topic(name=name, partitions=[partition])],
        )
        return request, _codes

    def _delete(self, name: str) -> RequestAndCodes:
        Topic = OffsetDeleteRequest.OffsetDeleteRequestTopic  # noqa: N806
        partition = Topic.OffsetDeleteRequestPartition(partition_index=0)
        request = OffsetDeleteRequest[0](group_id=self.group, topics=[Topic(name=name, partitions=[partition])])
        return request, lambda answer: [answer.error_code, *_codes(answer)]


def _codes(answer: Any) -> list[int]:
    return [partition.error_code for topic in answer.topics for partition in topic.partitions]


def fetch_offsets(coordinator: Caller, groups: Iterable[str]) -> dict[str, tuple[FetchedOffset, ...]]:
    """Return OffsetFetch's answers of a broker about groups, with ``require_stable`` and without.

    A group that the broker does not coordinate, or not yet, is left out. Raises OSError.
    """
    stable, any_ = ({**_fetched(coordinator, groups, require_stable=one)} for one in (True, False))
    return {
        group: tuple(FetchedOffset(name, stable[group][name], any_[group][name]) for name in sorted(ALL_KEYS))
        for group in stable.keys() & any_.keys()
    }


def _fetched(coordinator: Caller, groups: Iterable[str], *, require_stable: bool) -> Mapping[str, Mapping[str, str]]:
    Group = OffsetFetchRequest.OffsetFetchRequestGroup  # noqa: N806
    topics = [Group.OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in ALL_KEYS]
    wanted = [Group(group_id=group, topics=topics) for group in groups]
    answer = coordinator.call(OffsetFetchRequest[8](groups=wanted, require_stable=require_stable))
    return {
        group.group_id: {topic.name: _text(partition) for topic in group.topics for partition in topic.partitions}
        for group in answer.groups
        if not group.error_code
    }


def _text(partition: Any) -> str:
    if partition.error_code:
        name = error_name(partition.error_code)
        return UNSTABLE if name == "UnstableOffsetCommitError" else name
    return NO_OFFSET if partition.committed_offset == NONE else str(partition.committed_offset)
