"""Types of command-line options: values are validated here, in one place, before a command begins.

Every type rejects a value with one sentence that names the option and the value, which Click composes
(``Invalid value for '--nemesis': …``); `harness.cli.main.main` then exits with code 254.
"""

from __future__ import annotations

import errno
import math
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from harness.clients import CLIENTS, find_client
from harness.errors import UsageError
from harness.escape import visible
from harness.play.options import PROTECTIONS, find_protection
from harness.run_folder.store import MANIFEST
from harness.runtimes import AUTO, RUNTIMES, find_runtime
from harness.schedules.catalog import ALL, GROUPS, Anomaly, scenarios_for
from harness.schedules.timers import TIMERS as ALL_TIMERS
from harness.schedules.timers import find_timers
from harness.suggest import quoted
from harness.targets import TARGETS, find_target
from nemesis import SCRIPTS, find_script
from workloads.applications import APPLICATIONS, find_application

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

LONGEST_TIME_S = 366 * 86_400.0
"""The bound on a run or a night: longer than any of them, and short enough for every timer of the platform."""
MOST_SEED = 2**62
"""Seeds are incremented from here without exceeding 64 bits."""

_WHOLE_NUMBER = re.compile(r"[+-]?\d{1,30}", re.ASCII)
_TOPIC_PATTERN = re.compile(r"[a-zA-Z0-9._\-*?\[\]!]+")
LONGEST_TOPIC = 249
"""``LEGAL_CHARS`` and ``MAX_NAME_LENGTH`` of `org.apache.kafka.common.internals.Topic`, with a glob's characters."""


class Text(click.ParamType[Any]):
    """A text of at least one character, all of which are visible; ``check`` raises `UsageError` for an invalid one.

    ``known``: the names that the shell completes. A subclass of Click's type, like all types here.
    """

    name = "text"

    def __init__(self, check: Callable[[str], object] = lambda _: None, known: Iterable[str] = ()) -> None:
        """Store the further check and the names."""
        self.check = check
        self.known = tuple(known)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002
        """Return the known names that begin with the typed text."""
        return [CompletionItem(name) for name in self.known if name.startswith(incomplete)]

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the text unchanged."""
        text = self._seen(value, param, ctx)
        self._checked(text, param, ctx)
        return text

    def _seen(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if not text.strip():
            self.fail(f"{quoted(text)} is empty.", param, ctx)
        if visible(text) != text:
            self.fail(f"{quoted(text)} has characters that cannot be printed.", param, ctx)
        return text

    def _checked(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> None:
        try:
            self.check(text)
        except UsageError as error:
            self.fail(str(error), param, ctx)


class Names(Text):
    """Names separated by commas, each of which is checked; a command gets a list."""

    def __init__(self, name_type: Text) -> None:
        """Take the check and the known names of a type of one name."""
        super().__init__(name_type.check, name_type.known)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the known names for the text after the last comma."""
        before, comma, last = incomplete.rpartition(",")
        return [CompletionItem(f"{before}{comma}{item.value}") for item in super().shell_complete(ctx, param, last)]

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        """Return the names."""
        if isinstance(value, list):  # converted already
            return value
        names = [name.strip() for name in self._seen(value, param, ctx).split(",")]
        for name in names:
            self._checked(name, param, ctx)
        return names


class Count(click.IntRange):
    """A whole number within bounds, in ASCII digits: Click's own range accepts any digits that `int` does."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        if isinstance(value, int):
            return value
        if not _WHOLE_NUMBER.fullmatch(value):
            self.fail(f"{quoted(value)} is not a whole number.", param, ctx)
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            return self.fail(f"{quoted(value)} is not in the range {self._describe_range()}.", param, ctx)


class Number(click.FloatRange):
    """A finite number within bounds: Click's own range accepts NaN, and infinity without a bound."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        if isinstance(value, float):
            return value
        try:
            number = super().convert(value, param, ctx)
        except click.BadParameter:
            return self.fail(f"{quoted(value)} is not a number in the range {self._describe_range()}.", param, ctx)
        return number if math.isfinite(number) else self.fail(f"{quoted(value)} is not a finite number.", param, ctx)


class FilePath(click.Path):
    """A path like Click's, but neither empty nor longer than the file system allows.

    ``hint`` is added to the error where the path does not exist; ``holds``: the name of a file that a folder of this
    kind contains.
    """

    def __init__(self, hint: str = "", *, holds: str | None = None, **options: Any) -> None:
        """Store Click's options of a path."""
        super().__init__(path_type=Path, **options)
        self._hint = hint
        self._holds = holds

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        text = os.fspath(value)
        if not text.strip():
            self.fail(f"{quoted(text)} is empty.", param, ctx)
        try:
            Path(text).lstat()
        except OSError as error:
            if error.errno not in {errno.ENOENT, errno.ENOTDIR, errno.EACCES}:
                self.fail(f"{quoted(text)} cannot be used: {error.strerror}.", param, ctx)
        path = Path(text)
        if self.exists and not (
            (path.is_dir() and self.dir_okay) or (path.exists() and not path.is_dir() and self.file_okay)
        ):
            kind = " or ".join(kind for kind, is_one in (("file", self.file_okay), ("folder", self.dir_okay)) if is_one)
            self.fail(f"{quoted(text)} is no {kind}{self._hint and f'; {self._hint}'}.", param, ctx)
        if self._holds is not None and not (path / self._holds).exists():
            self.fail(f"{quoted(text)} is not such a folder: it has no {self._holds}; {self._hint}.", param, ctx)
        return super().convert(value, param, ctx)


def file_to_read(hint: str = "") -> FilePath:
    """Return the type of a file that has to exist."""
    return FilePath(hint, exists=True, dir_okay=False, readable=True)


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


RUN_FOLDER = FilePath(
    "give a run folder, such as results/kafka-3.9/stuck-lso/latest", holds=MANIFEST, exists=True, file_okay=False
)

TARGET = Text(find_target, TARGETS)
PATCH = FilePath("give a folder of classes or a jar", exists=True)
ANOMALIES = Text(scenarios_for, (*Anomaly, GROUPS, ALL))
NEMESIS = Text(find_script, SCRIPTS)
CLIENT = Text(find_client, CLIENTS)
APPLICATION = Text(find_application, APPLICATIONS)
PROTECTION = Text(find_protection, PROTECTIONS)
RUNTIME = Text(find_runtime, (AUTO, *RUNTIMES))
TIMERS = Text(find_timers, ALL_TIMERS)
TOPIC = Text(topic_pattern)
