"""Compare the evidence files of a run with the sizes and digests in its manifest.

Evidence is everything that checkers read: the clients' history, the observations, each broker's files and Fetch
answers, events of gates, guards and applications. Derived files and logs are not listed.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any, Final

from harness.errors import UsageError
from harness.run_folder import store
from harness.run_folder.store import HISTORY, RunFolder

FIELD: Final = "evidence"
"""The manifest's field with ``{path: {"size_bytes": …, "blake2b": …}}``; paths are relative to the run folder."""
DIGEST_BYTES: Final = 16
DIGEST_THREADS: Final = 2
HEAD_START_S: Final = 1.0
"""The time that a check waits for digests before it starts Spark; larger runs are compared during the start."""

_AFTERWARDS = (store.APPLICATIONS, store.APPLICATION_HISTORY)
"""Files that are written when the evidence of the verdict is complete."""
_FILES = (HISTORY, store.OBSERVATIONS, *store.PROTECTION_FILES.values(), *_AFTERWARDS)
_FOLDERS = (f"{store.BROKERS}/", f"{store.FETCHED}/")
_UNIT_PARTS = 4
"""``brokers/<id>/<snapshot>/<topic>-<partition>``: a replica with a missing file is left out completely."""
_SHOWN = 5


@dataclass(frozen=True)
class EvidenceDifference:
    """A file or folder of the evidence that has changed since the run. ``is_extra``: the run did not write it."""

    path: str
    problem: str
    is_extra: bool = False

    def __str__(self) -> str:
        return f"{self.path} {self.problem}"

    @property
    def left_out(self) -> str:
        """The file or folder that checkers must not read because of this difference."""
        return self.path if self.is_extra else "/".join(PurePosixPath(self.path).parts[:_UNIT_PARTS])

    def concerns(self, topic: str, topics: Collection[str]) -> bool:
        """Return whether a verdict on the topic depends on this file. ``topics``: all topics of the run."""
        parts = PurePosixPath(self.path).parts
        if self.is_extra or self.path in _AFTERWARDS:
            return False
        own_topic = parts[_UNIT_PARTS - 1].rpartition("-")[0] if len(parts) >= _UNIT_PARTS else ""
        return own_topic == topic or own_topic not in topics


def take_inventory(folder: RunFolder) -> dict[str, dict[str, Any]]:
    """Return the manifest's list of evidence. Raises OSError for a file that cannot be read."""
    names = sorted(_present(folder))
    with ThreadPoolExecutor(DIGEST_THREADS) as pool:
        digests = zip(names, pool.map(_digest, (folder.path / name for name in names)), strict=True)
        return {
            name: {"size_bytes": (folder.path / name).stat().st_size, "blake2b": digest} for name, digest in digests
        }


def without(folder: RunFolder, differences: Iterable[EvidenceDifference]) -> RunFolder:
    """Return the folder without the files that have changed."""
    return RunFolder(folder.path, frozenset(difference.left_out for difference in differences))


@contextmanager
def comparing(
    folder: RunFolder, manifest: Mapping[str, Any], *, partial: bool = False
) -> Iterator[Callable[[], tuple[EvidenceDifference, ...]]]:
    """Compare a folder with the list in its manifest: sizes immediately, contents in threads.

    Yields a function that waits for the threads and returns all differences. An interrupted run has no list: only the
    existence of its history is verified.

    Raises `UsageError` for differences as soon as they are detected, unless ``partial``; always for a missing history
    and for a list that cannot be read.
    """
    if manifest["status"] != store.COMPLETE and manifest.get(FIELD) is None:
        listed, size_differences = {}, _missing(folder, [] if folder.history_path.is_file() else [HISTORY])
    else:
        listed = _listed(folder, manifest)
        size_differences = _other_sizes(folder, listed)
    _raise_if_different(folder, manifest, size_differences, partial=partial)
    digests = {name: digest for name, (size, digest) in listed.items() if _size(folder.path / name) == size}
    with ThreadPoolExecutor(DIGEST_THREADS) as pool:
        contents = {name: pool.submit(_differs, folder, name, digest) for name, digest in digests.items()}

        def differences() -> tuple[EvidenceDifference, ...]:
            others = [difference for future in contents.values() if (difference := future.result()) is not None]
            _raise_if_different(folder, manifest, others, partial=partial)
            return (*size_differences, *others)

        try:
            if not wait(contents.values(), HEAD_START_S).not_done:
                differences()
            yield differences
        finally:
            pool.shutdown(cancel_futures=True)


def _listed(folder: RunFolder, manifest: Mapping[str, Any]) -> dict[str, tuple[int, str]]:
    try:
        return {name: (int(entry["size_bytes"]), str(entry["blake2b"])) for name, entry in manifest[FIELD].items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        damaged = f"the run folder is damaged: {folder.manifest_path}"
        raise UsageError(f"{damaged} has no list of files as {FIELD}") from error


def _other_sizes(folder: RunFolder, listed: Mapping[str, tuple[int, str]]) -> list[EvidenceDifference]:
    sizes = {name: _size(folder.path / name) for name in listed}
    extra = [name for name in sorted(_present(folder)) if name not in listed and name.startswith(_FOLDERS)]
    changed = {name: size for name, (size, _) in listed.items() if sizes[name] not in {None, size}}
    others = [EvidenceDifference(n, f"has {sizes[n]} bytes, not the {changed[n]} that the run wrote") for n in changed]
    others += [EvidenceDifference(name, "was not written by the run", is_extra=True) for name in extra]
    return _missing(folder, [name for name, size in sizes.items() if size is None]) + others


def _missing(folder: RunFolder, names: Iterable[str]) -> list[EvidenceDifference]:
    """Return missing files; for missing folders, the outermost one and the number of its files."""
    gone: Counter[str] = Counter()
    for name in names:
        path = PurePosixPath(name)
        missing = (each for each in (*reversed(path.parents), path) if not os.path.lexists(folder.path / each))
        gone[str(next(missing, path))] += 1
    counts = {name: f" ({count} files)" if count > 1 else "" for name, count in gone.items()}
    return [EvidenceDifference(name, f"is missing{count}") for name, count in counts.items()]


def _present(folder: RunFolder) -> Iterator[str]:
    """Yield the existing evidence, without hidden files of file systems and desktops."""
    files = (folder.path / name for name in _FILES)
    inside = chain.from_iterable((folder.path / top).rglob("*") for top in _FOLDERS)
    for path in chain(files, inside):
        if path.is_file() and not path.name.startswith("."):
            yield path.relative_to(folder.path).as_posix()


def _size(path: Path) -> int | None:
    return path.stat().st_size if os.path.isfile(path) else None  # noqa: PTH113  (raises nothing)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=DIGEST_BYTES)).hexdigest()


def _differs(folder: RunFolder, name: str, digest: str) -> EvidenceDifference | None:
    try:
        is_same = _digest(folder.path / name) == digest
    except OSError as error:
        return EvidenceDifference(name, f"cannot be read: {error.strerror or error}")
    return None if is_same else EvidenceDifference(name, "has other content than the run wrote")


def _raise_if_different(
    folder: RunFolder, manifest: Mapping[str, Any], differences: Sequence[EvidenceDifference], *, partial: bool
) -> None:
    damaged = f"the run folder is damaged: {folder.path}"
    if differences and not partial and all(difference.path != HISTORY for difference in differences):
        shown = "; ".join(map(str, differences[:_SHOWN]))
        more = f"; and {len(differences) - _SHOWN} more" if len(differences) > _SHOWN else ""
        raise UsageError(f"{damaged}: {shown}{more}; `harness check --partial` judges the rest")
    for difference in differences:
        if difference.path == HISTORY:
            raise UsageError(
                f"{damaged}: {difference}: without the clients' history, no replica can be judged; compare the replicas"
                f" with each other: {_audit(folder, manifest)}"
            )


def _audit(folder: RunFolder, manifest: Mapping[str, Any]) -> str:
    replicas = [replica for scenario in manifest["scenarios"] for replica in scenario["replicas"].values()]
    brokers = sorted({broker for replica in replicas for broker in replica})
    folders = (f"--broker {broker}={folder.broker_snapshot(broker, store.AFTER_REJOIN)}" for broker in brokers)
    return f"harness audit disk --topic '*' {' '.join(folders)}"
