"""Shows which remote segments a broker believes in if its copy of ``__remote_log_metadata`` has diverged.

    python bench/remote_metadata.py

KIP-1266 (KAFKA-20033, not released) would make that topic compacted. Then a replica that missed a removed event would
revive it for every broker that reads from this replica, and a frozen replica would hide what follows. This bench feeds
events to Kafka 4.4.0's own `RemotePartitionMetadataStore`, as `ConsumerTask` does, and prints its answers.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from harness.targets import find_target
from harness.targets.jars import jars_for

SOURCE = Path(__file__).resolve().parent / "remote_metadata_java" / "Believed.java"
PACKAGE: Final = "org.apache.kafka.server.log.remote.metadata.storage"
COPIED = "A+ A. B+ B. C+ C."
REPLICAS: Final = {
    "a correct replica": f"{COPIED} A- A!",
    "the deletion of A was missed (revived)": COPIED,
    "only the start of the deletion of A was received": f"{COPIED} A-",
    "frozen after the start of the copy of B": "A+ A. B+",
    "the end of the copy of B is lost": "A+ A. B+ C+ C.",
    "only the last event of each segment is left": "A! B. C.",
}


def main() -> None:
    """Print the answers for each replica."""
    jars = jars_for(find_target("kafka-4.4")).classpath
    with tempfile.TemporaryDirectory() as build:
        subprocess.run(["javac", "-d", build, "-cp", jars, SOURCE], check=True)
        command = ["java", "-cp", os.pathsep.join([build, jars]), f"{PACKAGE}.Believed", *REPLICAS.values()]
        answers = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    for name, answer in zip(REPLICAS, answers, strict=True):
        sys.stdout.write(f"{name}: {answer}\n")


if __name__ == "__main__":
    main()
