"""The most memory that a command takes, with everything that it started."""

from __future__ import annotations

import threading

import psutil

PERIOD_S = 0.2


class Peak:
    """Samples the memory of a process and everything that it started, until stopped.

    Memory is the sum of resident sets: pages that processes share are counted by each.
    """

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._peak_bytes = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def stop_gib(self) -> float:
        """Return the peak in GiB."""
        self._stop.set()
        self._thread.join()
        return float(self._peak_bytes / 2**30)

    def _sample(self) -> None:
        while not self._stop.wait(PERIOD_S):
            total = 0
            try:
                family = [self._root, *self._root.children(recursive=True)]
            except psutil.NoSuchProcess:
                return
            for process in family:
                try:
                    total += process.memory_info().rss
                except psutil.Error:
                    continue
            self._peak_bytes = max(self._peak_bytes, total)
