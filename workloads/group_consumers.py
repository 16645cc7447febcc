"""The view that a consumer group has of one coordinator: its committed offsets, and the begin of a real consumer.

Both are operations in the history, part ``reader``:

* ``fetch offsets`` (a request sent to the coordinator): ``group``, ``stable`` (whether only offsets without a pending
  transaction are asked for, as consumers do), ``offsets`` {input partition: offset}, ``answer``: the error's name.
  `NO_COORDINATOR_YET` is an answer only of a broker that had no other until the time was over.
* ``consume`` (a consumer of the client library, read_committed, without an offset from the start): ``group``,
  ``protocol``, ``first`` {input partition: first offset that was delivered}, ``within_s``: how long it was given.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from typing import Any, Final

from harness.clients import GroupConsumer, LibraryGroups
from harness.errors import HarnessError, WaitTimeoutError
from harness.host.clock import Clock
from harness.kafka_api import NO_COORDINATOR_YET, TopicPartition, connection
from harness.kafka_api.address import Address
from harness.kafka_api.client_requests import CommittedOffsets, fetch_offsets
from harness.run_folder.history import CONSUME, FETCH_OFFSETS, History
from harness.schedules.scenario import INPUT_PARTITIONS

PART: Final = "reader"
LEAST_S: Final = 2.5
PATIENCE: Final = 3.0
"""A consumer is given so many times as long as one whose coordinator was never away, and `LEAST_S` at least."""
POLL_S: Final = 0.05


@dataclass(frozen=True)
class Group:
    """A group, the partition of ``__consumer_offsets`` that keeps it, and the topic that it consumes."""

    name: str
    partition: TopicPartition
    topic: str

    @property
    def inputs(self) -> list[TopicPartition]:
        """The partitions that the group consumes."""
        return [(self.topic, number) for number in range(INPUT_PARTITIONS)]


@dataclass(frozen=True)
class GroupReader:
    """Observes groups. ``address`` returns a broker's; ``timeout_s`` bounds each answer of a coordinator."""

    library: LibraryGroups
    history: History
    clock: Clock
    phase: str
    address: Callable[[int], Address]
    timeout_s: float

    def ask(self, coordinators: Mapping[Group, int], needed_s: Mapping[str, float]) -> dict[str, float]:
        """Fetch the groups' offsets from the coordinators; return how long that took, by the operation's name.

        ``coordinators``: the broker that leads each group's partition. ``needed_s``: how long it took with brokers that
        were never away; empty for these, which are given ``timeout_s``, and for which a refusal is a `HarnessError`.
        """
        began_s, within_s = self.clock.now_s(), self._patience(FETCH_OFFSETS, needed_s)
        # A broker that cannot load a group's partition says for ever that it does not coordinate the group.
        pending = {
            (group, stable): self.history.invoke(f=FETCH_OFFSETS, **self._who(group, broker), stable=stable)
            for group, broker in coordinators.items()
            for stable in (True, False)
        }
        last: dict[tuple[Group, bool], CommittedOffsets] = {}

        def all_answered() -> bool:
            for group, stable in list(pending):
                request = fetch_offsets(group.name, group.inputs, require_stable=stable)
                with suppress(OSError):
                    last[group, stable] = connection.ask(self.address(coordinators[group]), request)
                    if last[group, stable].error not in NO_COORDINATOR_YET:
                        self._complete(pending.pop((group, stable)), last[group, stable])
            return not pending

        try:
            self.clock.wait_until(all_answered, within_s, "brokers to answer for their groups")
        except WaitTimeoutError:
            if pending.keys() - last.keys():
                raise
        for (group, stable), event in pending.items():
            answer = last[group, stable]
            self._complete(event, answer)
            if not needed_s:
                leads = f"broker {coordinators[group]} leads the partition of group {group.name}"
                raise HarnessError(f"{leads}, and says {answer.error}")
        return {FETCH_OFFSETS: self.clock.now_s() - began_s}

    def _complete(self, event: dict[str, Any], answer: CommittedOffsets) -> None:
        offsets = {str(number): offset for (_, number), offset in sorted(answer.offsets.items())}
        self.history.complete("ok", event, offsets=offsets, answer=answer.error)

    def consume(
        self, coordinators: Mapping[Group, int], protocols: Sequence[str], needed_s: Mapping[str, float]
    ) -> dict[str, float]:
        """Consume by each group protocol; return how long that took, by protocol. The rest is as with `ask`."""
        return {name: self._consume(coordinators, name, self._patience(name, needed_s)) for name in protocols}

    def _patience(self, name: str, needed_s: Mapping[str, float]) -> float:
        return round(min(max(LEAST_S, PATIENCE * needed_s.get(name, self.timeout_s)), self.timeout_s), 1)

    def _consume(self, coordinators: Mapping[Group, int], protocol: str, within_s: float) -> float:
        """Consume until every partition has delivered a record, or the time is over; return the seconds."""
        began_s = self.clock.now_s()
        first: dict[Group, dict[int, int]] = {group: {} for group in coordinators}
        consumers: dict[Group, GroupConsumer] = {}
        events = {}
        with ExitStack() as owned:
            for group, broker in coordinators.items():
                events[group] = self.history.invoke(f=CONSUME, **self._who(group, broker), protocol=protocol)
                consumer = self.library.consumer(group.name, group.topic, protocol)
                consumers[group] = owned.enter_context(closing(consumer))

            def all_delivered() -> bool:
                for group, consumer in consumers.items():
                    if len(first[group]) < INPUT_PARTITIONS:
                        for (_, number), offset in consumer.poll(POLL_S):
                            first[group].setdefault(number, offset)
                return all(len(delivered) == INPUT_PARTITIONS for delivered in first.values())

            try:
                self.clock.wait_until(all_delivered, within_s, "every group to get a record of each partition")
            except WaitTimeoutError:
                pass  # The records that were delivered before are the observation.
            except HarnessError as error:
                for event in events.values():
                    self.history.complete("fail", event, error=str(error))
                raise
            for group, event in events.items():
                delivered = {str(number): offset for number, offset in sorted(first[group].items())}
                self.history.complete("ok", event, first=delivered, within_s=within_s)
        return self.clock.now_s() - began_s

    def _who(self, group: Group, broker: int) -> dict[str, object]:
        topic, partition = group.partition
        return {
            "process": "reader", "part": PART, "phase": self.phase, "topic": topic, "partition": partition,
            "broker": broker, "group": group.name, "input": group.topic,
        }  # fmt: skip
