"""Kafka Connect, distributed: workers whose config and offset topics have replicas that disagree.

The run writes these topics in Connect's own format (`KafkaConfigBackingStore`, `KafkaOffsetBackingStore`), record for
record as a worker of 4.3.1 wrote them for the same calls of its REST interface, with the filler around them, which
workers ignore. Then two real workers are started on them, with ``exactly.once.source.support=enabled`` (KIP-618), so
that they read these topics with read_committed. Each has a config topic: the connectors of one have separate offset
topics, and the config topic of the other is stuck. Users see the connectors and the state of their tasks (``GET
/connectors``), and the offsets from which stopped source connectors continue (``GET /connectors/NAME/offsets``,
KIP-875).
"""

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from harness.clients import ClientSpec
from harness.clients.java import JVM_FLAGS
from harness.errors import WaitTimeoutError
from harness.host.clock import Clock
from harness.host.leftovers import process_marker
from harness.host.ports import LOOPBACK, free_ports
from harness.schedules.catalog import Anomaly, abort, commit, delete, put
from harness.schedules.operations import Write
from harness.schedules.scenario import Scenario
from workloads.applications import Application, Life, Observation

MAIN_CLASS = "org.apache.kafka.connect.cli.ConnectDistributed"
SOURCE = "org.apache.kafka.connect.file.FileStreamSource"
CONFIGS, STUCK_CONFIGS = "connect-configs", "connect-configs-stuck"
FILE, LINES = "lines.txt", "connect-lines"
CONTENT: Final = "".join(f"line {number}\n" for number in range(1, 11))
EVERYTHING: Final = len(CONTENT)
TWO_LINES: Final = len("line 1\nline 2\n")
READY_S = 60.0
"""So long a worker may take to answer; where nothing is wrong it took 6 to 7 s on 2 cores."""
SETTLE_S = 60.0
"""So long connectors may take to run."""
STOP_S = 5.0
ANSWER_S = 10
CONNECTORS, OFFSETS = "connectors", "offsets"
STARTED, STOPPED = "STARTED", "STOPPED"
OFFSET_TOPICS: Final = {
    "reset": "connect-offsets-reset",
    "aborted": "connect-offsets-aborted",
    "behind": "connect-offsets-stuck",
}
"""The separate offset topics of connectors, by connector."""


def _json(content: object) -> str:
    return json.dumps(content, separators=(",", ":"))


def connector(name: str, state: str = STARTED, offsets: str | None = None) -> tuple[Write, ...]:
    """Return what a worker writes to its config topic for a file source with one task."""
    properties = {
        "connector.class": f"{SOURCE}Connector",
        "file": FILE,
        "topic": LINES,
        "tasks.max": "1",
        "topic.creation.default.replication.factor": "-1",
        "topic.creation.default.partitions": "1",
        **({"offsets.storage.topic": offsets} if offsets else {}),
        "name": name,
    }
    target = {"state": "PAUSED" if state == STOPPED else state, "state.v2": state}
    return (
        put("plain", f"target-state-{name}", _json(target)),
        put("plain", f"connector-{name}", _json({"properties": properties})),
        put("plain", f"task-{name}-0", _json({"properties": {**properties, "task.class": f"{SOURCE}Task"}})),
        put("plain", f"commit-{name}", _json({"tasks": 0 if state == STOPPED else 1})),
    )


def offset(process: str, name: str, position: int) -> Write:
    """Return what a source task writes to its offset topic: how far it has come, in bytes."""
    return put(process, _offset_key(name), _json({"position": position}))


def _offset_key(name: str) -> str:
    return _json([name, {"filename": FILE}])


def session_key(process: str, secret: str, time_ms: int) -> Write:
    """Return what the leading worker writes when it renews the key that workers sign their requests with (KIP-507)."""
    content = {"key": secret, "algorithm": "HmacSHA256", "creation-timestamp": time_ms}
    return put(process, "session-key", _json(content))


KEYS: Final = ("ialrkFLpDl9Yn7m18B8DQQ0eEs4nRB8AW6Q2rm85YBY=", "c2Vjb25kLXNlc3Npb24ta2V5LW9mLXRoZS1oYXJuZXM=")

SCENARIOS: Final = (
    Scenario(
        name=CONFIGS,
        anomaly=Anomaly.TOMBSTONE_DIVERGENCE,
        payload="delete",
        summary="A connector is deleted while a replica of the config topic is down.",
        before=(
            *(step for name, topic in OFFSET_TOPICS.items() for step in connector(name, STOPPED, topic)),
            *connector("kept"),
            *connector("deleted"),
        ),
        outage=(delete("plain", "connector-deleted"), delete("plain", "target-state-deleted")),
    ),
    Scenario(
        name=STUCK_CONFIGS,
        anomaly=Anomaly.STUCK_LSO,
        payload="value",
        summary="A worker has its session key in an open transaction when a replica of the config topic goes down.",
        before=(*connector("older", STOPPED), session_key("tx", KEYS[0], 1)),
        outage=(commit("tx"), session_key("plain", KEYS[1], 2), *connector("newer", STOPPED)),
    ),
    Scenario(
        name=OFFSET_TOPICS["reset"],
        anomaly=Anomaly.TOMBSTONE_DIVERGENCE,
        payload="delete",
        summary="A source connector's offsets are reset while a replica of the offset topic is down.",
        before=(offset("plain", "reset", EVERYTHING),),
        outage=(delete("plain", _offset_key("reset")),),
    ),
    Scenario(
        name=OFFSET_TOPICS["aborted"],
        anomaly=Anomaly.ABORTED_TO_COMMITTED,
        payload="value",
        summary="A source task's transaction is aborted, with its offsets, while a replica of their topic is down.",
        before=(offset("plain", "aborted", TWO_LINES), offset("tx", "aborted", EVERYTHING)),
        outage=(abort("tx"),),
        late=(offset("tx", "another", TWO_LINES), commit("tx")),
    ),
    Scenario(
        name=OFFSET_TOPICS["behind"],
        anomaly=Anomaly.STUCK_LSO,
        payload="value",
        summary="A source task's transaction is committed, with its offsets, while a replica of their topic is down.",
        before=(offset("plain", "behind", TWO_LINES), offset("tx", "behind", 2 * TWO_LINES)),
        outage=(commit("tx"), offset("plain", "behind", EVERYTHING)),
    ),
)

SETTINGS: Final = {
    "offset.storage.topic": "connect-offsets",
    "offset.storage.partitions": "1",
    "status.storage.partitions": "1",
    **{f"{kind}.storage.replication.factor": "-1" for kind in ("config", "offset", "status")},
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "exactly.once.source.support": "enabled",
    "plugin.discovery": "service_load",
    "offset.flush.interval.ms": "500",
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "500",
    "rebalance.timeout.ms": "6000",
    "scheduled.rebalance.max.delay.ms": "0",
    "metadata.max.age.ms": "1000",
}
LOGGER: Final = "-Dorg.slf4j.simpleLogger"
# These would log a line, or a stack trace, for each record of the filler.
SILENT: Final = ("KafkaConfigBackingStore", "KafkaOffsetBackingStore", "OffsetUtils")
LOG_FLAGS: Final = (
    f"{LOGGER}.defaultLogLevel=warn",
    f"{LOGGER}.log.org.apache.kafka.connect.runtime=info",
    *(f"{LOGGER}.log.org.apache.kafka.connect.storage.{name}=off" for name in SILENT),
)


@dataclass
class Worker:
    """A worker process with its config topic. Workers of a ``life`` are a group: none waits for a former session."""

    configs: str
    life: str
    spec: ClientSpec
    clock: Clock
    port: int
    running_s: float | None = None
    _started_s: float = field(init=False)
    process: subprocess.Popen[bytes] = field(init=False)

    def start(self) -> None:
        """Write its properties and start it."""
        home = self.spec.work_dir / self.configs
        home.mkdir(exist_ok=True)
        (home / FILE).write_text(CONTENT)
        settings = {
            "bootstrap.servers": self.spec.bootstrap,
            "group.id": f"{self.configs}-{self.life}",
            "config.storage.topic": self.configs,
            "status.storage.topic": f"status-of-{self.configs}",
            "listeners": f"http://{LOOPBACK}:{self.port}",
        }
        properties = home / "worker.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in {**SETTINGS, **settings}.items()))
        self._started_s = self.clock.now_s()
        marker = (f"-Djava.io.tmpdir={self.spec.work_dir}", process_marker(self.spec.run_id))
        flags = (*JVM_FLAGS, "-Xmx256m", *LOG_FLAGS, *marker, "-cp", self.spec.classpath)
        with self.spec.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [str(self.spec.java.path), *flags, MAIN_CLASS, str(properties)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=home,
            )

    def stop(self) -> None:
        """Wait for its end; SIGKILL where that does not come: a worker that waits for a stuck topic never ends."""
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(STOP_S)

    def is_ready(self) -> bool:
        """Return whether the worker lists its connectors."""
        with suppress(OSError):
            if self.running_s is None:
                self.get("/connectors")
                self.running_s = self.watched_s()
        return self.running_s is not None

    def watched_s(self) -> float:
        """Seconds since its start."""
        return round(self.clock.now_s() - self._started_s, 1)

    def connectors(self, except_for: Collection[str] = ()) -> dict[str, str]:
        """Return the state of each connector and its tasks. Raises OSError where the worker refuses."""
        answer = self.get("/connectors?expand=status")
        return {name: state_of(entry["status"]) for name, entry in answer.items() if name not in except_for}

    def offsets(self, connector: str) -> dict[str, str]:
        """Return the offsets of a connector by partition. Raises OSError where the worker refuses."""
        return positions_of(self.get(f"/connectors/{connector}/offsets"))

    def has_settled(self) -> bool:
        """Return whether every connector is stopped, or runs with a task."""
        with suppress(OSError):
            return all(state in {STOPPED, "RUNNING, task 0 RUNNING"} for state in self.connectors().values())
        return False

    def get(self, path: str) -> Any:
        """Return what the worker answers. Raises OSError where it does not, or refuses."""
        with urllib.request.urlopen(f"http://{LOOPBACK}:{self.port}{path}", timeout=ANSWER_S) as answer:
            return json.load(answer)


def state_of(status: Mapping[str, Any]) -> str:
    """Return the state of a connector and its tasks, from its ``status``."""
    tasks = (f"task {task['id']} {task['state']}" for task in status["tasks"])
    return ", ".join([status["connector"]["state"], *tasks])


def positions_of(answer: Mapping[str, Any]) -> dict[str, str]:
    """Return the offset by partition of an answer to ``GET /connectors/NAME/offsets``, both as JSON."""
    offsets = [entry for entry in answer["offsets"] if entry["offset"] is not None]
    return {_json(entry["partition"]): _json(entry["offset"]) for entry in offsets}


def observe(spec: ClientSpec, clock: Clock, life: Life) -> list[Observation]:
    """Start both workers, wait for them within bounds, and return their answers."""
    topics = (CONFIGS, STUCK_CONFIGS)
    workers = [Worker(topic, life.name, spec, clock, p) for topic, p in zip(topics, free_ports(2), strict=True)]
    with ExitStack() as owned:
        for worker in workers:
            worker.start()
            owned.callback(worker.stop)
        for worker in workers:
            owned.callback(worker.process.terminate)  # it leaves its group
        with suppress(WaitTimeoutError):
            clock.wait_until(lambda: not [w for w in workers if not w.is_ready()], READY_S, "workers to answer")
        ready = [worker for worker in workers if worker.running_s is not None]
        with suppress(WaitTimeoutError):
            clock.wait_until(lambda: all(worker.has_settled() for worker in ready), SETTLE_S, "the connectors to run")
        return [
            *(_observation(w, w.configs, CONNECTORS, partial(w.connectors, OFFSET_TOPICS)) for w in workers),
            *(
                _observation(workers[0], topic, OFFSETS, partial(workers[0].offsets, name))
                for name, topic in OFFSET_TOPICS.items()
            ),
        ]


def _observation(worker: Worker, topic: str, view: str, ask: Callable[[], dict[str, str]]) -> Observation:
    """Return what a worker answers; ``ask`` raises OSError where it is refused."""
    entries = error = None
    state = "starting" if worker.running_s is None else "ready"
    try:
        entries = ask() if worker.running_s is not None else None
    except OSError as refused:
        error = reason_of(refused)
    times_s = {"running_s": worker.running_s, "watched_s": worker.watched_s()}
    return {"topic": topic, "view": view, "state": state, **times_s, "entries": entries, "error": error}


def reason_of(refused: OSError) -> str:
    """Return why a request was refused: the worker's own message, where it gave one."""
    if not isinstance(refused, urllib.error.HTTPError):
        return f"no answer within {ANSWER_S} s" if isinstance(refused, TimeoutError) else str(refused)
    text = refused.read().decode(errors="replace")
    with suppress(ValueError, KeyError, TypeError):
        text = json.loads(text)["message"]
    return f"{refused.code} {text}"


APPLICATION: Final = Application(
    name="connect",
    summary="Kafka Connect: workers whose config and offset topics have diverged",
    opened=lambda spec, clock: nullcontext(partial(observe, spec, clock)),
    scenarios=SCENARIOS,
    topics=lambda _: [scenario.name for scenario in SCENARIOS],
)
