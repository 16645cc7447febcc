"""The data folders of brokers that are processes of this machine: their current files and their synced data."""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.errors import HarnessError
from harness.protect.gate.build import Agent
from harness.runtimes import power
from harness.runtimes.base import Need, Runtime
from harness.runtimes.power import Cut, Synced

NOTES: Final = "synced"
LOOK_S: Final = 0.001
"""A cleaner's files exist for ten milliseconds."""
WATCH_S: Final = 0.5


@dataclass(frozen=True)
class LocalFiles:
    """Implements `harness.runtimes.base.PowerSupplies` and `DataFiles`.

    ``data``: returns the data folder of a broker, which is next to its sync notes. ``agent``: writes them, or None.
    """

    processes: Runtime
    data: Callable[[int], Path]
    agent: Agent | None = None

    def begin_notes(self, brokers: Sequence[int]) -> None:
        """Create the sync notes of brokers that were never started."""
        for broker in brokers if self.agent else ():
            power.begin_notes(self._notes(broker), self.data(broker))

    def flags(self, broker: int) -> list[str]:
        """Return the JVM's flags for sync notes, if any."""
        return [] if self.agent is None else [self.agent.flag(f"{self._notes(broker)}={self.data(broker)}")]

    def unsynced(self, broker: int) -> list[Cut]:
        """Compare the files of a broker, which may be running, with its sync notes."""
        return list(power.find_unsynced(self.data(broker), self._synced(broker)))

    def cut_power(self, broker: int) -> list[Cut]:
        """SIGKILL the broker, and cut its files to their synced lengths."""
        self._raise_without_notes()
        self.processes.kill(broker)
        cuts = power.cut_unsynced(self.data(broker), self._synced(broker))
        power.begin_notes(self._notes(broker), self.data(broker))
        return cuts

    def kill_with_files(self, broker: int, suffixes: tuple[str, ...]) -> dict[str, int]:
        """Search every millisecond. SIGSTOP the broker if such files seem to exist, then SIGKILL or SIGCONT it."""
        until_s = time.monotonic() + WATCH_S
        while not self._ending(broker, suffixes):
            if time.monotonic() >= until_s:
                return {}
            time.sleep(LOOK_S)
        self.processes.pause(broker)
        if not self._ending(broker, suffixes):
            self.processes.resume(broker)
            return {}
        self.processes.kill(broker)
        return self._ending(broker, suffixes)

    def _notes(self, broker: int) -> Path:
        return self.data(broker).with_name(NOTES)

    def _synced(self, broker: int) -> Synced:
        self._raise_without_notes()
        return power.read_synced(self._notes(broker).read_text())

    def _raise_without_notes(self) -> None:
        if self.agent is None:
            raise HarnessError(f"the brokers of this run are not {Need.SYNCS}")

    def _ending(self, broker: int, suffixes: tuple[str, ...]) -> dict[str, int]:
        """Return the sizes of the partitions' files with these suffixes, except files that vanish in the meantime."""
        sizes = {}
        for folder in os.scandir(self.data(broker)):
            if not folder.is_dir() or folder.name.startswith(power.METADATA_FOLDER):
                continue
            with suppress(FileNotFoundError), os.scandir(folder) as files:
                for file in files:
                    if file.name.endswith(suffixes):
                        with suppress(FileNotFoundError):
                            sizes[f"{folder.name}/{file.name}"] = file.stat().st_size
        return sizes
