"""A power failure: SIGKILL, and records that the broker had not synced to disk are gone when it returns.

Kafka leaves syncing to the operating system and relies on the other replicas: the active segment of a partition is
synced only when it rolls (``log.flush.interval.messages`` and ``log.flush.interval.ms`` have no limit by default). In a
run the payload has to survive on the broker, so it is synced before the fault, and more is written then, whose end is
not, and which the broker gets again from the leader. `harness.runtimes.power` decides which bytes are cut off.
"""

from contextlib import suppress
from typing import Final

from harness.errors import HarnessError
from harness.kafka_api import TopicPartition
from harness.runtimes.base import Need, PowerSupplies
from nemesis.fault import BrokerState, Fault, FaultContext, each, start
from nemesis.script import Act, script_of

FLUSH_MESSAGES: Final = "flush.messages"
INTERNAL_TOPICS: Final = ("__transaction_state", "__consumer_offsets")


def cut_power(context: FaultContext, broker: int) -> None:
    """Cut the power of the broker, and note which records were lost."""
    isrs: dict[TopicPartition, list[int]] = {}
    # A loss is the cluster's if the broker was the only member of the ISR.
    with suppress(HarnessError, OSError):
        states = context.cluster.control.states([*context.cluster.topics, *INTERNAL_TOPICS])
        isrs = {tp: sorted(state.isr) for tp, state in states.items()}
    files = [
        {**cut.as_json(), **({"isr": isrs.get(cut.lost.topic_partition)} if cut.lost is not None else {})}
        for cut in context.ability(PowerSupplies).cut_power(broker)
    ]
    context.note("power failure", broker=broker, cut=files)


def leave(context: FaultContext) -> None:
    """Have the payload synced, write more, and cut the power."""
    cluster = context.cluster
    topics = sorted({topic for topic, _ in cluster.exposed})

    def is_payload_synced() -> bool:
        ends, power = context.payload_ends(), context.ability(PowerSupplies)
        losses = (cut.lost for broker in context.brokers for cut in power.unsynced(broker) if cut.lost)
        return all(loss.first_offset >= ends.get(loss.topic_partition, 0) for loss in losses)

    cluster.admin.alter_topics(topics, {FLUSH_MESSAGES: "1"})
    context.write_ballast()
    cluster.wait(is_payload_synced, "the payload to be synced to disk")
    cluster.admin.alter_topics(topics, {FLUSH_MESSAGES: None})
    context.write_ballast()
    FAULT.inject(context)


FAULT = Fault(
    name="power-failure",
    summary="SIGKILL, records that were not synced to disk are lost, and a restart at the end",
    inject=each(cut_power),
    heal=start,
    needs=frozenset({Need.SYNCS}),
    broker_state=BrokerState.DOWN,
)
SCRIPT = script_of(FAULT, leave=Act("cut the power of broker {broker}", leave), rejoining="restart broker {broker}")
