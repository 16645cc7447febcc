"""A power failure: SIGKILL, and what the broker had not synced to disk is gone when it comes back.

Kafka leaves syncing to the operating system and relies on the other replicas: the active segment of a partition is
synced only when it rolls (``log.flush.interval.messages`` and ``log.flush.interval.ms`` have no limit by default). The
payload has to survive on the broker, as a replica without it has nothing to be wrong about; so all that is written
before the fault is synced, and more is written then, whose end is not. The broker gets it again from the leader. What
is cut, and how, is in `harness.runtimes.power.cut`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from harness.errors import HarnessError
from harness.runtimes.abilities import Need, PowerSupplies
from nemesis.fault import Nemesis, each, nothing, start

if TYPE_CHECKING:
    from harness.kafka_api.replica import TopicPartition
    from nemesis.fault import NemesisContext

FLUSH_MESSAGES: Final = "flush.messages"
INTERNAL_TOPICS: Final = ("__transaction_state", "__consumer_offsets")


def inject(context: NemesisContext) -> None:
    """Have the payload synced, write more, and cut the power."""
    topics = sorted({topic for topic, _ in context.cluster.exposed})
    context.cluster.admin.alter_topics(topics, {FLUSH_MESSAGES: "1"})
    context.write_ballast()
    context.cluster.wait(lambda: _is_payload_synced(context), "the payload to be synced to disk")
    context.cluster.admin.alter_topics(topics, {FLUSH_MESSAGES: None})
    context.write_ballast()
    cut_power(context)


def _is_payload_synced(context: NemesisContext) -> bool:
    ends, power = context.payload_ends(), context.ability(PowerSupplies)
    return not any(
        one.lost is not None and one.lost.first_offset < ends.get(one.lost.topic_partition, 0)
        for broker in context.absent
        for one in power.unsynced(broker)
    )


def _cut_power(context: NemesisContext, broker: int) -> None:
    isrs = _isrs(context)
    cuts = context.ability(PowerSupplies).cut_power(broker)
    files = [
        {**one.as_json(), **({"isr": isrs.get(one.lost.topic_partition)} if one.lost is not None else {})}
        for one in cuts
    ]
    context.note("power failure", broker=broker, cut=files)


def _isrs(context: NemesisContext) -> dict[TopicPartition, list[int]]:
    """Return every ISR before the power is cut: a loss is the cluster's where the broker was its only member."""
    with suppress(HarnessError, OSError):
        states = context.cluster.control.states([*context.cluster.topics, *INTERNAL_TOPICS])
        return {tp: sorted(state.isr) for tp, state in states.items()}
    return {}


cut_power = each(_cut_power)
"""Cut the power of the brokers, as they are, and note what was lost."""

NEMESIS = Nemesis(
    name="power-failure",
    summary="SIGKILL, what was not synced to disk is lost, and a restart once the window is over",
    leaving="cut the power of broker {broker}",
    returning="restart broker {broker}",
    inject=inject,
    heal=start,
    reinject=nothing,
    needs=frozenset({Need.SYNCS}),
)
