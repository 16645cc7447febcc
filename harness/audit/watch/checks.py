"""The repeated checks of a watch."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from harness.audit.watch.status import WatchStatus, check, reason_of
from harness.errors import WaitTimeoutError
from harness.kafka_api.connection import ClusterClient


@dataclass
class Checks:
    """The checks of a watch, which take seconds."""

    client: ClusterClient
    topics: Sequence[str]
    report: Callable[[str], None]
    status: WatchStatus

    def check(self) -> None:
        """Check once. A failure is reported once, and the checks before it remain."""
        status = self.status
        try:
            status.checks = check(self.client, self.topics, status.checks)
        except Exception as error:  # noqa: BLE001  (it is in metrics and health, and the next checks may succeed)
            failure = reason_of(error)
            if failure != status.check_failure:
                self.report(f"watch: the checks failed: {failure}; they are repeated")
            status.check_failure, status.check_failures = failure, status.check_failures + 1
        else:
            status.check_failure = None

    def wait(self) -> None:
        """Wait for the next checks, which may suspect partitions, for the time between two of them at most."""
        status, checks = self.status, self.status.checks
        with suppress(WaitTimeoutError):
            self.client.clock.wait_until(lambda: status.checks is not checks, status.every_s, "the next checks")
