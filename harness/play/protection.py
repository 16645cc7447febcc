"""Protections of a run, which keep cleaners waiting for replicas out of the ISR: gates in brokers, or a guard.

Both report when they hold a partition and when they release it; `harness.judge.earned` judges these events.
"""

import json
import logging
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from harness.broker_files.side_files.server_logs import ServerLogs
from harness.errors import HarnessError
from harness.escape import to_json
from harness.host.clock import Clock
from harness.host.commands import ENVIRONMENT
from harness.host.leftovers import process_marker
from harness.kafka_api import TopicPartition
from harness.protect.gate.events import is_held
from harness.run_folder.guard_events import GuardEventKind

log = logging.getLogger("harness")

GUARD_INTERVAL_S: Final = 0.5
"""The period of the guard's rounds during a run."""
GUARDED_RETENTION_MS: Final = 6_000
"""The least that it needs is in `harness.protect.guard.cluster`, above this room."""
READY_S: Final = 60.0
END_S: Final = 30.0
LINES_SHOWN: Final = 10


@dataclass(frozen=True)
class Gates:
    """The gates in brokers, which begin and end with their brokers; or a build with such rules of its own, or none.

    ``logs``: of brokers, parsed by `harness.protect.gate.events`. ``path``: the file for their events; a build without
    events gets no file.
    """

    logs: ServerLogs
    path: Path
    is_build: bool = False

    def begin(self, owned: ExitStack) -> None:
        """Do nothing: every broker has begun with its gate."""

    def raise_if_failed(self) -> None:
        """Do nothing: a broker whose gate fails does not start."""

    def holds(self, broker: int, partition: TopicPartition) -> bool:
        """Return whether the broker's cleaner is kept from the partition, by the last event in the broker's log."""
        return is_held(self.logs.events(), broker, partition)

    def stop(self) -> None:
        """Do nothing: a gate changes no settings when it releases a partition, and these settings freeze the topics."""

    def write(self) -> None:
        """Write all events to ``gate.jsonl``."""
        events = self.logs.events()
        if events or not self.is_build:
            self.path.write_text("".join(to_json(event) + "\n" for event in events))


@dataclass
class GuardBeside:
    """``harness guard`` in a separate process, which ends with the run.

    ``path``: the file to which it appends events; ``log_path``: its output. ``command_config``: its login.
    """

    run_id: str
    bootstrap: str
    path: Path
    log_path: Path
    clock: Clock
    command_config: Path | None = None
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def begin(self, owned: ExitStack) -> None:
        """Have it work until ``owned`` closes; brokers are up. Raises `HarnessError` where it does not."""
        self._start()
        owned.callback(self.stop)

        def is_watching() -> bool:
            self.raise_if_failed()
            return any(event["event"] == GuardEventKind.READY for event in self._events())

        self.clock.wait_until(is_watching, READY_S, "the guard to watch the cluster")

    def raise_if_failed(self) -> None:
        """Start a killed guard again, as a service manager does. Raises `HarnessError` if it ended itself."""
        code = None if self._process is None else self._process.poll()
        if code == -signal.SIGKILL:
            log.warning("the guard was killed, and is started again")
            self._start()
        elif code is not None:
            lines = self.log_path.read_text(errors="replace").splitlines()[-LINES_SHOWN:]
            raise HarnessError(f"the guard ended with {code}: {' | '.join(lines)}")

    def holds(self, broker: int, partition: TopicPartition) -> bool:  # noqa: ARG002  (a topic is held on all brokers)
        """Return whether the broker's cleaner is kept from the partition, by the last event of the topic."""
        kinds = {GuardEventKind.PAUSED, GuardEventKind.RELEASED}
        events = [e["event"] for e in self._events() if e["topic"] == partition[0] and e["event"] in kinds]
        return events[-1:] == [GuardEventKind.PAUSED]

    def stop(self) -> None:
        """End the guard. It leaves topics paused whose replicas are out of the ISR, whichever broker returns."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(END_S)
            except subprocess.TimeoutExpired:
                # Otherwise it could restore settings later, in the middle of the evidence.
                self._process.kill()
                self._process.wait(END_S)
        self._process = None

    def write(self) -> None:
        """Do nothing: the guard writes its events itself."""

    def _start(self) -> None:
        arguments = [
            "guard", "--bootstrap-server", self.bootstrap, "--interval", str(GUARD_INTERVAL_S),
            "--events", str(self.path), "--port", "0",
            *(("--command-config", str(self.command_config)) if self.command_config else ()),
        ]  # fmt: skip
        # The option that no Python knows is for `harness.host.leftovers`, which finds processes by it.
        python = [sys.executable, "-P", "-X", process_marker(self.run_id), "-m", "harness.cli.main"]
        with self.log_path.open("ab") as output:
            self._process = subprocess.Popen(
                [*python, *arguments], env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def _events(self) -> Sequence[dict[str, Any]]:
        text = self.path.read_text() if self.path.exists() else ""
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


Protection: TypeAlias = Gates | GuardBeside
