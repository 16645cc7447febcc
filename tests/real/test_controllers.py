"""The metadata log from real controllers, also from those that ask for a login and hold users to ACLs."""

from dataclasses import replace
from pathlib import Path

import pytest
from local_cluster import BOUND_S, local_cluster, start_brokers
from sandbox import wait_until
from secured import booted, login_file

from harness.audit.live.cluster import client_of
from harness.audit.live.metadata_log import METADATA_FOLDER, fetch_metadata_log
from harness.broker_files.metadata_log.history import absences
from harness.errors import HarnessError
from harness.host.clock import RealClock
from harness.kafka_api.address import Address
from harness.kafka_api.connection import ask
from harness.kafka_api.metadata import describe_cluster
from harness.kafka_api.security import read_security
from harness.runtimes.local import PROPERTIES, LocalRuntime
from harness.schedules.timers import FAST

TOPIC = ("t", 0)
SNAPSHOTS = {
    "metadata.log.max.snapshot.interval.ms": "2000", "metadata.log.max.record.bytes.between.snapshots": "1000",
    "metadata.max.retention.bytes": "2000", "metadata.log.segment.ms": "1000",
}  # fmt: skip
"""Snapshots after some seconds; the log then starts at the oldest that is retained, after a minute."""
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
PASSWORDS = {"admin": "the-secret-of-admin", "auditor": "the-secret-of-the-auditor"}
ACCOUNTS = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
CONTROLLERS_LOGIN = f"""
listener.security.protocol.map=CLIENT:SASL_PLAINTEXT,REPLICA:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT
sasl.mechanism.controller.protocol=PLAIN
listener.name.controller.sasl.enabled.mechanisms=PLAIN
listener.name.controller.plain.sasl.jaas.config={LOGIN} username="admin" password="{PASSWORDS["admin"]}" {ACCOUNTS};
"""


@pytest.mark.parametrize("target", ["kafka-3.9", "kafka-4.4"])
def test_the_log_of_a_controller_is_fetched_as_brokers_have_it(tmp_path: Path, target: str) -> None:
    with local_cluster(target, tmp_path, {**FAST.broker, **SNAPSHOTS}) as cluster:
        runtime, admin, _ = start_brokers(cluster)
        admin.create_topics({TOPIC: (1, 2, 3)}, {})

        def wait_for_isr(size: int) -> None:
            cluster.wait(lambda: [len(p.isr) for p in admin.partitions(["t"]).values()] == [size], f"{size} in sync")

        wait_for_isr(3)
        before_ms = RealClock().time_ms()
        runtime.pause(3)
        wait_for_isr(2)
        runtime.resume(3)
        wait_for_isr(3)
        client = client_of([runtime.address(1)])
        cluster_id = ask(runtime.address(1), describe_cluster([])).cluster_id
        controllers = list(runtime.controllers.values())
        joined = fetch_metadata_log(client, controllers, cluster_id, tmp_path / "first" / METADATA_FOLDER, {"t"})
        assert joined.notes == ()
        assert joined.metadata is not None
        history = joined.metadata.histories[TOPIC]
        assert history.since_creation
        (absence,) = absences(history.states, 3)
        assert before_ms <= (absence.since_ms or 0) < (absence.until_ms or 0) <= RealClock().time_ms()
        numbers = iter(range(1000))

        def starts_later() -> bool:
            folder = tmp_path / str(next(numbers)) / METADATA_FOLDER
            later = fetch_metadata_log(client, controllers, cluster_id, folder, {"t"})
            assert later.notes == ()
            assert later.metadata is not None
            # The offset is that of the snapshot, where the log starts later.
            last = later.metadata.histories[TOPIC].states[-1]
            assert replace(last, offset=history.states[-1].offset) == history.states[-1]
            return later.metadata.start_offset > 1

        wait_until(starts_later, BOUND_S, "the log to start at a snapshot")


@pytest.mark.parametrize("target", ["kafka-3.9", "kafka-4.4"])
def test_a_user_needs_cluster_action_on_a_listener_with_its_own_login(
    tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = LocalRuntime._write_properties

    def write_with_login(runtime: LocalRuntime, broker: int) -> None:
        write(runtime, broker)
        with (runtime._home(broker) / PROPERTIES).open("a") as file:
            file.write(CONTROLLERS_LOGIN)

    monkeypatch.setattr(LocalRuntime, "_write_properties", write_with_login)
    login = login_file(tmp_path, "auditor", PASSWORDS["auditor"])
    with booted(target, tmp_path, login, {"super.users": "User:ANONYMOUS;User:admin"}) as secured:
        secured.create({TOPIC: (1, 2, 3)}, {})
        client = client_of(secured.inside)
        cluster_id = ask(secured.inside[0], describe_cluster([])).cluster_id
        (at,) = secured.runtime.controllers.values()
        controller = Address(at.host, at.port, read_security(login))
        denied = fetch_metadata_log(client, [controller], cluster_id, tmp_path / "denied", {"t"})
        assert denied.metadata is None
        (note,) = denied.notes
        assert note.endswith("this user does not have ClusterAction on the cluster")
        secured.allow("auditor", [("cluster", "kafka-cluster", "ClusterAction")])
        numbers = iter(range(1000))

        def is_allowed() -> bool:
            folder = tmp_path / f"allowed-{next(numbers)}"
            metadata = fetch_metadata_log(client, [controller], cluster_id, folder, {"t"}).metadata
            return metadata is not None and TOPIC in metadata.histories

        wait_until(is_allowed, BOUND_S, "the right to reach the controller")
        refused = login_file(tmp_path, "auditor", "another-secret")
        stranger = Address(at.host, at.port, read_security(refused))
        with pytest.raises(HarnessError, match="refuses the login"):
            client.connect(stranger)
