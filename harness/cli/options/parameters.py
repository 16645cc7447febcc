"""Types of command-line options: values are validated here, in one place, before a command begins.

Every type rejects a value with one sentence that names the option and the value, which Click composes
(``Invalid value for '--nemesis': …``); `harness.cli.main.main` then exits with code 254.
"""

import errno
import math
import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from harness.clients import CLIENTS, find_client
from harness.errors import UsageError
from harness.escape import visible
from harness.play.options import PROTECTIONS
from harness.run_folder.store import MANIFEST
from harness.runtimes import AUTO, RUNTIMES, find_runtime
from harness.schedules.catalog import ANOMALIES as ALL_ANOMALIES
from harness.schedules.catalog import scenarios_for
from harness.schedules.timers import TIMERS as ALL_TIMERS
from harness.schedules.timers import find_timers
from harness.suggest import known_name, quoted
from harness.targets import TARGETS, find_target
from nemesis import SCRIPTS, find_script
from workloads.applications import APPLICATIONS, find_application

LONGEST_TIME_S = 366 * 86_400.0
"""The bound on a run or a night: longer than any of them, and short enough for every timer of the platform."""
MOST_SEED = 2**62
"""Seeds are incremented from here without exceeding 64 bits."""

_WHOLE_NUMBER = re.compile(r"[+-]?\d{1,30}", re.ASCII)
_TOPIC_PATTERN = re.compile(r"[a-zA-Z0-9._\-*?\[\]!]+")
MOST_BROKER = 2**31 - 1
LONGEST_TOPIC = 249
"""``LEGAL_CHARS`` and ``MAX_NAME_LENGTH`` of `org.apache.kafka.common.internals.Topic`, with a glob's characters."""


class Text(click.ParamType[Any]):
    """A text of at least one character, all of which are visible; ``check`` raises `UsageError` for an invalid text.

    ``names``: the names that the shell completes, iterated only then. With ``is_list``, texts separated by commas, of
    which a command gets a list. A subclass of Click's type, like all types here.
    """

    name = "text"

    def __init__(
        self, check: Callable[[str], object] = lambda _: None, names: Iterable[str] = (), metavar: str = "TEXT", *,
        is_list: bool = False,
    ) -> None:  # fmt: skip
        self.check, self.names, self.metavar, self.is_list = check, names, metavar, is_list

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:  # noqa: ARG002
        """Return the value's name in the help."""
        return self.metavar

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        """Return the names that begin with the typed text."""
        before, comma, last = incomplete.rpartition(",") if self.is_list else ("", "", incomplete)
        return [CompletionItem(f"{before}{comma}{name}") for name in self.names if name.startswith(last)]

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the text unchanged, or the list."""
        if isinstance(value, list):  # converted already
            return value
        text = str(value)
        if not text.strip():
            self.fail(f"{quoted(text)} is empty.", param, ctx)
        if visible(text) != text:
            self.fail(f"{quoted(text)} has characters that cannot be printed.", param, ctx)
        texts = [part.strip() for part in text.split(",")] if self.is_list else [text]
        try:
            for part in texts:
                self.check(part)
        except UsageError as error:
            self.fail(str(error), param, ctx)
        return texts if self.is_list else text


def list_of(kind: Text, metavar: str) -> Text:
    """Return the type of a list of such texts."""
    return Text(kind.check, kind.names, metavar, is_list=True)


class Number(click.ParamType[float]):
    """A number within bounds; ``min_open``: above the least. Click's own whole numbers accept any digits of `int`."""

    name = "number"

    def __init__(
        self, least: float, most: float, metavar: str = "N", *, min_open: bool = False, is_whole: bool = False
    ) -> None:
        self.min, self.max, self.metavar, self.min_open, self.is_whole = least, most, metavar, min_open, is_whole

    get_metavar = Text.get_metavar

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        text = quoted(str(value))
        if self.is_whole and not _WHOLE_NUMBER.fullmatch(str(value)):
            self.fail(f"{text} is not a whole number.", param, ctx)
        number = math.nan
        with suppress(ValueError):
            number = int(value) if self.is_whole else float(value)
        if not self.min <= number <= self.max or (self.min_open and number == self.min):
            bounds = f"a number {'above' if self.min_open else 'from'} {self.min:g} to {self.max:g}"
            whole = f"between {self.min} and {self.max}"
            self.fail(f"{text} is not {whole if self.is_whole else bounds}.", param, ctx)
        return number


Count: Final = partial(Number, is_whole=True)


class FilePath(click.Path):
    """A path like Click's, but neither empty nor longer than the file system allows.

    ``hint`` is added to the error where the path does not exist; ``contains``: the name of a file in every folder of
    this kind.
    """

    def __init__(self, hint: str = "", *, contains: str | None = None, metavar: str = "FILE", **options: Any) -> None:
        super().__init__(path_type=Path, **options)
        self.hint, self.contains, self.metavar = hint, contains, metavar

    get_metavar = Text.get_metavar

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        text = os.fspath(value)
        if not text.strip():
            self.fail(f"{quoted(text)} is empty.", param, ctx)
        path = Path(text)
        is_lacking = False
        try:
            path.lstat()
            is_lacking = self.contains is not None and not (path / self.contains).exists()
        except OSError as error:
            if error.errno not in {errno.ENOENT, errno.ENOTDIR} and (self.exists or error.errno != errno.EACCES):
                self.fail(f"{quoted(text)} cannot be used: {error.strerror}.", param, ctx)
        is_folder = path.is_dir()
        if self.exists and not (self.dir_okay if is_folder else self.file_okay and path.exists()):
            kinds = {"file": self.file_okay, "folder": self.dir_okay}
            kind = " or ".join(kind for kind, is_allowed in kinds.items() if is_allowed)
            self.fail(f"{quoted(text)} is not a {kind}{self.hint and f'; {self.hint}'}.", param, ctx)
        if is_lacking:
            self.fail(f"{quoted(text)} cannot be used: it has no {self.contains}; {self.hint}.", param, ctx)
        return super().convert(value, param, ctx)


def raise_unless_writable(*files: Path | None, folder: Path | None = None) -> None:
    """Raise `UsageError` for a file or a folder that cannot be written, before anything else is done."""
    path = folder
    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            TemporaryFile(dir=folder).close()
        for path in filter(None, files):
            is_new = not path.exists()
            path.open("ab").close()
            if is_new:
                path.unlink()
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from error


def is_number(text: str, most: int) -> bool:
    """Return whether a text has only ASCII digits, of a number up to ``most``."""
    return text.isascii() and text.isdigit() and len(text) <= len(str(most)) and int(text) <= most


def topic_pattern(text: str) -> None:
    """Raise `UsageError` for a text that is neither a topic's name nor a pattern of names."""
    if "," in text:
        each = " ".join(f"--topic {name}" for name in text.split(",") if name)
        raise UsageError(f"{quoted(text)} is not a topic: give each topic with a separate option: {each}")
    if not _TOPIC_PATTERN.fullmatch(text) or len(text) > LONGEST_TOPIC:
        raise UsageError(
            f"{quoted(text)} is not a topic: a name has letters, digits, '.', '_' and '-', {LONGEST_TOPIC} at most;"
            " a pattern has '*', '?' or '[…]', too"
        )


FILE = FilePath(dir_okay=False)
FILE_TO_READ, SCHEDULE_OF_A_RUN, ROUND_OF_A_SOAK = (
    FilePath(hint, exists=True, dir_okay=False)
    for hint in ("", "`harness explore --out` writes schedules", "each round of a soak has a round.json")
)
DIRECTORY = FilePath(file_okay=False, metavar="DIR")
EXISTING_DIRECTORY = FilePath(file_okay=False, exists=True, metavar="DIR")
RUN_FOLDER = FilePath(
    "give a run folder, such as results/kafka-3.9/stuck-lso/latest", contains=MANIFEST, exists=True, file_okay=False,
    metavar="RUN_DIR",
)  # fmt: skip
PATCH = FilePath("give a folder of classes or a jar", exists=True, metavar="DIR|JAR")
TARGET = Text(find_target, TARGETS, "NAME")
ANOMALIES = Text(scenarios_for, ALL_ANOMALIES, "NAME")
NEMESIS = Text(find_script, SCRIPTS, "NAME")
CLIENT = Text(find_client, CLIENTS, "NAME")
APPLICATION = Text(find_application, APPLICATIONS, "NAME")
PROTECTION = Text(partial(known_name, "protection", names=PROTECTIONS), PROTECTIONS, "NAME")
RUNTIME = Text(find_runtime, (AUTO, *RUNTIMES), "NAME")
TIMERS = Text(find_timers, ALL_TIMERS, "NAME")
TOPIC = Text(topic_pattern, metavar="NAME")
SEED = Count(0, MOST_SEED)
PORT = Count(0, 65_535, "PORT")
MEGABYTES_A_SECOND = Number(0, 1e6, min_open=True)
