"""The latest verdict of each partition, in an SQLite database, which survives ``kill -9``."""

import json
import sqlite3
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from harness.errors import HarnessError, UsageError, raised_as
from harness.judge.finding import Place

FILE: Final = "watch.db"
VERSION: Final = 1
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS cluster (id TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS partitions (
    topic TEXT, partition INTEGER, first_seen_ms INTEGER, compared_ms INTEGER, result TEXT,
    PRIMARY KEY (topic, partition)
);
"""


@dataclass(frozen=True)
class WatchedPartition:
    """A partition since ``first_seen_ms``. ``compared_ms``: the end of its last comparison; 0 before.

    ``result``: the last scenario of the partition as in ``verdict.json``, and its ``findings``; empty before.
    """

    first_seen_ms: int
    compared_ms: int = 0
    result: Mapping[str, Any] = field(default_factory=dict)


class WatchStore:
    """The state folder of one watch, of one cluster. ``partitions`` is replaced by each change, and never changed."""

    def __init__(self, folder: Path, cluster_id: str) -> None:
        """Open or create the state, and lock it until `close` or the end of the process.

        Raises `UsageError` for a folder that cannot be written, that another watch uses, or of another cluster.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # Transactions are explicit. A lock of the operating system ends with the process.
            self._database = sqlite3.connect(folder / FILE, timeout=0, isolation_level=None)
            with ExitStack() as on_error:
                on_error.enter_context(closing(self._database))
                if (refused := self._claim(cluster_id)) is not None:
                    raise UsageError(f"--state {folder}: {refused}; name another folder")
                rows = self._database.execute("SELECT * FROM partitions").fetchall()
                on_error.pop_all()
        except (OSError, sqlite3.Error) as error:
            is_locked = getattr(error, "sqlite_errorname", "") == "SQLITE_BUSY"
            why = "another watch uses it" if is_locked else getattr(error, "strerror", None) or error
            raise UsageError(f"--state {folder}: {why}") from error
        self.partitions: Mapping[Place, WatchedPartition] = {
            (topic, number): WatchedPartition(first_seen_ms, compared_ms, json.loads(result))
            for topic, number, first_seen_ms, compared_ms, result in rows
        }

    def _claim(self, cluster_id: str) -> str | None:
        """Lock the database, create its tables where it is new, and return why it cannot be used, if so."""
        self._database.execute("PRAGMA locking_mode=EXCLUSIVE")
        self._database.execute("BEGIN EXCLUSIVE")
        ((version,),) = self._database.execute("PRAGMA user_version")
        if version not in {0, VERSION}:
            return "written by another version of the harness"
        for statement in _SCHEMA.split(";"):
            self._database.execute(statement)
        self._database.execute(f"PRAGMA user_version={VERSION}")
        owner = self._database.execute("SELECT id FROM cluster").fetchone()
        if owner is None:
            self._database.execute("INSERT INTO cluster VALUES (?)", [cluster_id])
        self._database.execute("COMMIT")
        is_other = owner is not None and owner[0] != cluster_id
        return f"the state of cluster {owner[0]}, not of {cluster_id}" if is_other else None

    def follow(self, places: Collection[Place], now_ms: int) -> None:
        """Add new partitions, and forget those that do not exist any more. Raises `HarnessError`."""
        new = {place: WatchedPartition(now_ms) for place in places if place not in self.partitions}
        gone = self.partitions.keys() - places
        if new or gone:
            with self._transaction():
                self._database.executemany("DELETE FROM partitions WHERE topic = ? AND partition = ?", list(gone))
                self._write(new)
            remaining = {place: partition for place, partition in self.partitions.items() if place not in gone}
            self.partitions = {**remaining, **new}

    def put(self, compared: Mapping[Place, WatchedPartition]) -> None:
        """Store comparisons, all of them or none. Raises `HarnessError` where the disk is full."""
        with self._transaction():
            self._write(compared)
        self.partitions = {**self.partitions, **compared}

    def close(self) -> None:
        """Release the folder."""
        self._database.close()

    def _write(self, partitions: Mapping[Place, WatchedPartition]) -> None:
        self._database.executemany(
            "INSERT OR REPLACE INTO partitions VALUES (?, ?, ?, ?, ?)",
            [(*place, p.first_seen_ms, p.compared_ms, json.dumps(p.result)) for place, p in partitions.items()],
        )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with raised_as(HarnessError, "the state cannot be written", sqlite3.Error), self._database:
            self._database.execute("BEGIN")
            yield
