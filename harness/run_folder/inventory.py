"""The evidence of a run: its files with sizes and digests, as the manifest lists them, against what is there.

Evidence is what the checkers read: the clients' history, the observations, each broker's files and Fetch answers,
what gates did, what applications showed, and the aftermath. Not evidence, and not listed: what is derived from it
(``verdict.json``, ``outcomes.jsonl``, ``report.html``, ``topology.svg``), and logs (``harness.log``, ``logs/``, …),
which people read and kept clusters write on.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from harness.errors import UsageError
from harness.run_folder.store import (
    AFTER_REJOIN,
    AFTERMATH,
    AFTERMATH_HISTORY,
    APPLICATION_HISTORY,
    APPLICATIONS,
    BATCHES,
    BROKERS,
    COMPLETE,
    FETCHED,
    GATE,
    HISTORY,
    OBSERVATIONS,
    STATE,
    RunFolder,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

FIELD: Final = "evidence"
"""Of the manifest: ``{path: {"size_bytes": …, "blake2b": …}}``; paths are relative to the run folder."""
DIGEST_BYTES: Final = 16
DIGEST_THREADS: Final = 2
HEAD_START_S: Final = 1.0
"""So long a check waits for digests before it starts Spark; those of bigger runs are compared beside its start."""
NOT_LISTED: Final = (
    "the manifest does not list the evidence (an older run): sizes and contents of its files could not be checked"
)

_AFTERWARDS = (APPLICATIONS, APPLICATION_HISTORY, AFTERMATH, AFTERMATH_HISTORY)
"""Written when the evidence of the verdict is complete."""
_FILES = (HISTORY, OBSERVATIONS, GATE, *_AFTERWARDS)
_FOLDERS = (f"{BROKERS}/", f"{FETCHED}/")
_UNIT_PARTS = 4
"""``brokers/<id>/<snapshot>/<topic>-<partition>``: a replica with a file missing may not stand for the whole one."""
_SHOWN = 5


@dataclass(frozen=True)
class Difference:
    """A file or folder of the evidence that is not as the run left it. ``is_extra``: the run did not write it."""

    path: str
    problem: str
    is_extra: bool = False

    def __str__(self) -> str:
        return f"{self.path} {self.problem}"

    @property
    def left_out(self) -> str:
        """What is not to be read for it."""
        return self.path if self.is_extra else "/".join(PurePosixPath(self.path).parts[:_UNIT_PARTS])

    def concerns(self, topic: str, topics: Collection[str]) -> bool:
        """Whether a verdict on the topic rests on it; ``topics`` are all that the run has."""
        parts = PurePosixPath(self.path).parts
        if self.is_extra or self.path in _AFTERWARDS:
            return False
        of = parts[_UNIT_PARTS - 1].rpartition("-")[0] if len(parts) >= _UNIT_PARTS else ""
        return of == topic or of not in topics


def take_inventory(folder: RunFolder) -> dict[str, dict[str, Any]]:
    """Return what the manifest lists. Raises OSError for a file that cannot be read."""
    names = sorted(_present(folder))
    with ThreadPoolExecutor(DIGEST_THREADS) as pool:
        digests = list(pool.map(_digest, (folder.path / name for name in names)))
    return {
        name: {"size_bytes": (folder.path / name).stat().st_size, "blake2b": digest}
        for name, digest in zip(names, digests, strict=True)
    }


def notes(manifest: Mapping[str, Any]) -> list[str]:
    """Return what a verdict has to note on this run."""
    return [NOT_LISTED] if manifest.get(FIELD) is None else []


def without(folder: RunFolder, differences: Iterable[Difference]) -> RunFolder:
    """Return the folder without what is not as the run left it."""
    return RunFolder(folder.path, frozenset(difference.left_out for difference in differences))


@contextmanager
def comparing(
    folder: RunFolder, manifest: Mapping[str, Any], *, partial: bool = False
) -> Iterator[Callable[[], tuple[Difference, ...]]]:
    """Compare a folder with the list in its manifest: sizes at once, contents in threads.

    Gives what waits for these and returns all differences, which are none unless ``partial``.

    Raises `UsageError` for the first kind of difference that is found, when it is found, unless ``partial``; also then
    where the history is missing, and where the list cannot be read. Of a run without a list, files that every run
    has are asked for.
    """
    listed = _listed(folder, manifest)
    found = _lacks(folder, manifest) if listed is None else _other_sizes(folder, listed)
    _raise_if_different(folder, manifest, found, partial=partial)
    wanted = {name: digest for name, (size, digest) in (listed or {}).items() if _size(folder.path / name) == size}
    with ThreadPoolExecutor(DIGEST_THREADS) as pool:
        contents = {name: pool.submit(_differs, folder, name, digest) for name, digest in wanted.items()}

        def differences() -> tuple[Difference, ...]:
            others = [difference for future in contents.values() if (difference := future.result()) is not None]
            _raise_if_different(folder, manifest, others, partial=partial)
            return (*found, *others)

        try:
            if not wait(contents.values(), HEAD_START_S).not_done:
                differences()
            yield differences
        finally:
            pool.shutdown(cancel_futures=True)


def _listed(folder: RunFolder, manifest: Mapping[str, Any]) -> dict[str, tuple[int, str]] | None:
    """Return size and digest by path; None where the manifest lists nothing."""
    if manifest.get(FIELD) is None:
        return None
    try:
        return {name: (int(entry["size_bytes"]), str(entry["blake2b"])) for name, entry in manifest[FIELD].items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"the run folder is damaged: {folder.manifest_path} has no list of files as {FIELD}"
        ) from error


def _lacks(folder: RunFolder, manifest: Mapping[str, Any]) -> list[Difference]:
    """Return what is missing of that which every run has, and every run that went to its end."""
    is_complete = manifest["status"] == COMPLETE
    replicas = [
        f"{broker}/{AFTER_REJOIN}/{scenario['topic']}-{partition}"
        for scenario in manifest["scenarios"]
        for partition, brokers in scenario["replicas"].items()
        for broker in brokers
        if is_complete
    ]
    names = [
        HISTORY,
        *([OBSERVATIONS] if is_complete else []),
        *(f"{BROKERS}/{replica}" for replica in replicas),
        *(f"{FETCHED}/{replica}/{name}" for replica in replicas for name in (BATCHES, STATE)),
    ]
    logs = [folder.path / BROKERS / replica for replica in replicas]
    return [
        *_missing(folder, [name for name in names if not (folder.path / name).exists()]),
        *(
            # Files of other systems are set aside in a folder of their own.
            Difference(path.relative_to(folder.path).as_posix(), "has no *.log")
            for path in logs
            if path.exists() and not any(path.rglob("*.log"))
        ),
    ]


def _other_sizes(folder: RunFolder, listed: Mapping[str, tuple[int, str]]) -> list[Difference]:
    sizes = {name: _size(folder.path / name) for name in listed}
    extra = [name for name in sorted(_present(folder)) if name not in listed and name.startswith(_FOLDERS)]
    return [
        *_missing(folder, [name for name, size in sizes.items() if size is None]),
        *(
            Difference(name, f"has {sizes[name]} bytes, not the {size} that the run wrote")
            for name, (size, _) in listed.items()
            if sizes[name] not in {None, size}
        ),
        *(Difference(name, "was not written by the run", is_extra=True) for name in extra),
    ]


def _missing(folder: RunFolder, names: Iterable[str]) -> list[Difference]:
    """Return missing files; of folders that are gone, with all that was in them, the outermost."""
    gone: Counter[str] = Counter()
    for name in names:
        path = PurePosixPath(name)
        outermost = (one for one in (*reversed(path.parents), path) if not (folder.path / one).exists())
        gone[str(next(outermost, path))] += 1
    return [Difference(name, "is missing" + (f" ({count} files)" if count > 1 else "")) for name, count in gone.items()]


def _present(folder: RunFolder) -> Iterator[str]:
    """Yield the evidence that is there; hidden files are those of file systems and desktops."""
    files = (folder.path / name for name in _FILES)
    inside = chain.from_iterable((folder.path / top).rglob("*") for top in _FOLDERS)
    for path in chain(files, inside):
        if path.is_file() and not path.name.startswith("."):
            yield path.relative_to(folder.path).as_posix()


def _size(path: Path) -> int | None:
    return path.stat().st_size if path.is_file() else None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=DIGEST_BYTES)).hexdigest()


def _differs(folder: RunFolder, name: str, digest: str) -> Difference | None:
    try:
        return (
            None if _digest(folder.path / name) == digest else Difference(name, "has other content than the run wrote")
        )
    except OSError as error:
        return Difference(name, f"cannot be read: {error.strerror or error}")


def _raise_if_different(
    folder: RunFolder, manifest: Mapping[str, Any], differences: Sequence[Difference], *, partial: bool
) -> None:
    if not differences:
        return
    if not partial:
        shown = "; ".join(map(str, differences[:_SHOWN]))
        more = f"; and {len(differences) - _SHOWN} more" if len(differences) > _SHOWN else ""
        raise UsageError(
            f"the run folder is damaged: {folder.path}: {shown}{more}; `harness check --partial` judges the rest"
        )
    for difference in differences:
        if difference.path == HISTORY:
            raise UsageError(
                f"the run folder is damaged: {folder.path}: {difference}: without the clients' history, no replica"
                f" can be called wrong; compare the replicas with each other: {_audit(folder, manifest)}"
            )


def _audit(folder: RunFolder, manifest: Mapping[str, Any]) -> str:
    """Return the command that compares the replicas of a run without its clients."""
    brokers = sorted({
        broker for scenario in manifest["scenarios"] for held in scenario["replicas"].values() for broker in held
    })  # fmt: skip
    folders = (f"--broker {broker}={folder.broker_snapshot(broker, AFTER_REJOIN)}" for broker in brokers)
    return f"harness audit disk --topic '*' {' '.join(folders)}"
