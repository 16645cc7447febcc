"""A folder that looks like an unpacked Kafka: jars from Maven Central, and the scripts of ``bin`` that are used here.

Each script starts the class that Kafka's own script of that name starts, with the same arguments. What is missing are
Kafka's defaults for logging, the collector and JMX, which its scripts add.
"""

import os
from pathlib import Path
from typing import Final

from harness.host.cache import cache_root
from harness.targets.jars import JarSet, fetch_locked, materialise
from harness.targets.lock import read_digests

UPSTREAM: Final = Path(__file__).parents[2] / "results" / "upstream"
NEWEST: Final = "4.4.0"
"""The newest release whose tools Maven Central has."""

MAIN_CLASSES: Final = {
    "kafka-server-start.sh": "kafka.Kafka",
    "kafka-storage.sh": "kafka.tools.StorageTool",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-console-producer.sh": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-reassign-partitions.sh": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-leader-election.sh": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-dump-log.sh": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-configs.sh": "org.apache.kafka.tools.ConfigCommand",
    "kafka-log-dirs.sh": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-transactions.sh": "org.apache.kafka.tools.TransactionsCommand",
}
"""The classes that the scripts of Kafka's ``bin`` name."""
QUIET: Final = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"


def jars(version: str) -> JarSet:
    digests = read_digests(Path(__file__).parent / f"kafka-tools-{version}.lock")
    return materialise(digests, cache_root() / "jars" / f"tools-{version}", fetch_locked)


def make_kafka_home(folder: Path, version: str = NEWEST, patch: Path | None = None) -> Path:
    """Write the folder, and return it. ``patch``: classes that go in front of the jars."""
    for name in ("bin", "libs"):
        (folder / name).mkdir(parents=True)
    for jar in jars(version).paths:
        (folder / "libs" / jar.name).symlink_to(jar)
    classpath = os.pathsep.join([*([str(patch)] if patch else []), str(folder / "libs" / "*")])
    for name, main_class in MAIN_CLASSES.items():
        script = folder / "bin" / name
        script.write_text(f"""#!/bin/sh
exec java {QUIET} $KAFKA_HEAP_OPTS -cp "{classpath}" {main_class} "$@"
""")
        script.chmod(0o755)
    return folder
