"""Kafka Streams: tables that are restored from a topic whose replicas disagree.

Each topic is read by two separate applications, with exactly_once_v2:

- ``table``: ``StreamsBuilder.table(topic)`` with ``topology.optimization=all``, by which the topic itself is the
  changelog (KIP-295). An instance without local state restores the table from it, through Streams' restore consumer, up
  to the offset that the application has committed (`StoreChangelogReader`).
- ``global-table``: ``StreamsBuilder.globalTable(topic)``, which every instance reads whole before it is RUNNING
  (`GlobalStateManagerImpl`, `KafkaStreams.State`).

Users see the state of the instance, and the entries of the store by interactive query.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError

from harness.clients import ClientSpec
from harness.clients.java import virtual_machine
from harness.errors import HarnessError, WaitTimeoutError, raised_as
from harness.host.clock import Clock
from harness.judge.consequences import ABSENT
from workloads.applications import Application, Life, Observation, Observe

HEAP: Final = "512m"
RUNNING_S = 60.0
"""So long an instance may take to be RUNNING. Where nothing is wrong it took 1 to 5 s on 2 cores."""
ABSENT_RUNNING_S = 20.0
"""The bound while a broker that was absent leads: an instance that is not RUNNING within it is a finding."""
SETTLE_S = 10.0
"""So long a RUNNING instance may take to have the entries that a consumer gets."""
CLOSE_S = 10
STORE = "store"
VIEWS: Final = {"table": "table", "global-table": "globalTable"}
"""By its name here, the method of StreamsBuilder."""

CONFIG: Final = {
    "processing.guarantee": "exactly_once_v2",
    "topology.optimization": "all",
    "commit.interval.ms": "100",
    "consumer.auto.offset.reset": "earliest",
    "consumer.metadata.max.age.ms": "1000",
    "consumer.session.timeout.ms": "6000",
    "consumer.heartbeat.interval.ms": "500",
    # Else the next instance waits for the end of this one's session.
    "main.consumer.internal.leave.group.on.close": "true",
}


@contextmanager
def opened(spec: ClientSpec, clock: Clock) -> Iterator[Observe]:
    """Start one JVM for all instances; it is ended with the block."""
    with (
        raised_as(HarnessError, "Kafka Streams cannot be observed", Py4JError),
        virtual_machine(spec, heap=HEAP) as jvm,
    ):
        yield partial(observe, jvm, spec, clock)


def observe(jvm: Any, spec: ClientSpec, clock: Clock, life: Life) -> list[Observation]:
    """Start an instance of each application, wait for it within bounds, and return its view."""
    instances = {(view, topic): _instance(jvm, spec, life, view, topic) for topic in life.topics for view in VIEWS}
    running_s: dict[tuple[str, str], float] = {}
    started_s = clock.now_s()

    def all_run() -> bool:
        for name, instance in instances.items():
            if name not in running_s and instance.state().name() == "RUNNING":
                running_s[name] = round(clock.now_s() - started_s, 1)
        return len(running_s) == len(instances)

    def have_all_entries() -> bool:
        return all(_shown(jvm, instances[name])["entries"] == life.consumed[name[1]] for name in running_s)

    try:
        for instance in instances.values():
            instance.start()
        with suppress(WaitTimeoutError):
            bound_s = ABSENT_RUNNING_S if life.name == ABSENT else RUNNING_S
            clock.wait_until(all_run, bound_s, "every instance to be RUNNING")
        with suppress(WaitTimeoutError):
            clock.wait_until(have_all_entries, SETTLE_S, "the stores to have what a consumer gets")
        return [
            {
                "topic": topic,
                "view": view,
                "state": instance.state().name(),
                "running_s": running_s.get((view, topic)),
                "watched_s": round(clock.now_s() - started_s, 1),
                **_shown(jvm, instance),
            }
            for (view, topic), instance in instances.items()
        ]
    finally:
        for instance in instances.values():
            instance.close(jvm.java.time.Duration.ofSeconds(CLOSE_S))


def _instance(jvm: Any, spec: ClientSpec, life: Life, view: str, topic: str) -> Any:
    settings = {
        "application.id": f"{view}-{topic}",
        "bootstrap.servers": spec.bootstrap,
        "state.dir": str(spec.work_dir / "streams" / life.state),
    }
    properties = jvm.java.util.Properties()
    for key, value in {**CONFIG, **settings}.items():
        properties.put(key, value)
    streams, serde = jvm.org.apache.kafka.streams, jvm.org.apache.kafka.common.serialization.Serdes.String
    builder = streams.StreamsBuilder()
    consumed = getattr(streams.kstream.Consumed, "with")(serde(), serde())
    stored = getattr(streams.kstream.Materialized, "as")(STORE)
    getattr(builder, VIEWS[view])(topic, consumed, stored)
    return streams.KafkaStreams(builder.build(properties), properties)


def _shown(jvm: Any, instance: Any) -> Observation:
    streams, entries = jvm.org.apache.kafka.streams, {}
    store_type = streams.state.QueryableStoreTypes.keyValueStore()
    try:
        store = instance.store(streams.StoreQueryParameters.fromNameAndType(STORE, store_type))
        with closing(store.all()) as iterator:
            while iterator.hasNext():
                entry = iterator.next()
                entries[entry.key] = entry.value
    except Py4JJavaError as error:
        return {"entries": None, "error": str(error.java_exception.toString())}
    return {"entries": entries, "error": None}


APPLICATION: Final = Application(
    name="streams", summary="Kafka Streams: tables and global tables of the diverged topics", opened=opened
)
