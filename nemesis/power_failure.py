"""A power failure: SIGKILL, and records that the broker had not synced to disk are gone when it returns.

Kafka leaves syncing to the operating system and relies on the other replicas: the active segment of a partition is
synced only when it rolls (``log.flush.interval.messages`` and ``log.flush.interval.ms`` have no limit by default). In a
run the payload has to survive on the broker, as a replica without it has nothing to be wrong about; so everything that
is written before the fault is synced, and more is written then, whose end is not. The broker gets it again from the
leader. `harness.runtimes.power` decides which bytes are cut off.
"""

from contextlib import suppress
from typing import Final

from harness.errors import HarnessError
from harness.kafka_api import TopicPartition
from harness.runtimes.base import Need, PowerSupplies
from nemesis.fault import BrokerState, Fault, FaultContext, each, start
from nemesis.script import Act, ScriptContext, script_of

FLUSH_MESSAGES: Final = "flush.messages"
INTERNAL_TOPICS: Final = ("__transaction_state", "__consumer_offsets")


def cut_power(context: FaultContext, broker: int) -> None:
    """Cut the power of the broker, and note which records were lost."""
    isrs = _isrs(context)
    files = [
        {**cut.as_json(), **({"isr": isrs.get(cut.lost.topic_partition)} if cut.lost is not None else {})}
        for cut in context.ability(PowerSupplies).cut_power(broker)
    ]
    context.note("power failure", broker=broker, cut=files)


def _isrs(context: FaultContext) -> dict[TopicPartition, list[int]]:
    """Return every ISR before the power is cut: a loss is the cluster's where the broker was its only member."""
    with suppress(HarnessError, OSError):
        states = context.cluster.control.states([*context.cluster.topics, *INTERNAL_TOPICS])
        return {tp: sorted(state.isr) for tp, state in states.items()}
    return {}


def leave(context: ScriptContext) -> None:
    """Have the payload synced, write more, and cut the power."""
    cluster = context.cluster
    topics = sorted({topic for topic, _ in cluster.exposed})
    cluster.admin.alter_topics(topics, {FLUSH_MESSAGES: "1"})
    context.write_ballast()
    cluster.wait(lambda: _is_payload_synced(context), "the payload to be synced to disk")
    cluster.admin.alter_topics(topics, {FLUSH_MESSAGES: None})
    context.write_ballast()
    FAULT.inject(context.absent)


def _is_payload_synced(context: ScriptContext) -> bool:
    ends, power = context.payload_ends(), context.absent.ability(PowerSupplies)
    return not any(
        cut.lost is not None and cut.lost.first_offset < ends.get(cut.lost.topic_partition, 0)
        for broker in context.absent.brokers
        for cut in power.unsynced(broker)
    )


FAULT = Fault(
    name="power-failure",
    summary="SIGKILL, records that were not synced to disk are lost, and a restart at the end",
    inject=each(cut_power),
    heal=start,
    needs=frozenset({Need.SYNCS}),
    broker_state=BrokerState.DOWN,
)
SCRIPT = script_of(FAULT, leave=Act("cut the power of broker {broker}", leave), rejoining="restart broker {broker}")
