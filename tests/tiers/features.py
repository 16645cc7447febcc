"""What a test exercises of the harness, noted while the test runs.

A feature is ``kind=value``: ``command=audit disk``, ``exit=run 255``, ``runtime=docker``. `note` is for the helpers
through which tests drive the harness, such as ``tests/real/sandbox.py``; the recorder takes what was noted after each
test and after each shared fixture.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

FILE: Final = "file"
"""The kind of the one feature that is not noted: each file of ``tests/real`` is one by itself."""

REQUIRED: Final = frozenset({"command", "runtime", "client", "target"})
"""Kinds of which the commit tier exercises every value, whatever it costs."""
WANTED: Final = frozenset({"exit", FILE})
"""Kinds of which it exercises each value as long as its budget lasts: there are always more commands and files.

Other kinds, such as nemesis, only connect tests to changes.
"""

_GROUPS: Final = frozenset({"audit", "guard", "images"})
"""Commands that have commands of their own."""
_NOTHING_DONE: Final = frozenset({254, 255})
_OPTIONS: Final = frozenset({"--target", "--runtime", "--client", "--nemesis"})
_RUN_DEFAULTS: Final = {"--client": "librdkafka", "--nemesis": "kill"}

_noted: set[str] = set()


def note(kind: str, value: str) -> None:
    """Note a feature of the test or fixture that runs."""
    _noted.add(f"{kind}={value}")


def note_command(arguments: Sequence[str], exit_code: int) -> None:
    """Note a command line of ``harness`` that has ended; defaults of a run count, those of a resumed one are unknown.

    A run that was refused (254) or failed (255) did nothing with its options: only its exit counts.
    """
    words = arguments[: 2 if arguments[0] in _GROUPS else 1]
    command = " ".join(word for word in words if not word.startswith("-"))
    note("command", command)
    note("exit", f"{command} {exit_code}")
    if exit_code in _NOTHING_DONE:
        return
    given = dict(pairwise(arguments))
    defaults = _RUN_DEFAULTS if command == "run" and "--resume" not in given else {}
    for option, value in {**defaults, **given}.items():
        if option in _OPTIONS:
            note(option.removeprefix("--"), value)


def take() -> frozenset[str]:
    """Return what was noted since the last call, and forget it."""
    taken = frozenset(_noted)
    _noted.clear()
    return taken


def is_required(feature: str) -> bool:
    """Tell whether the commit tier has to exercise a feature, whatever it costs."""
    return feature.partition("=")[0] in REQUIRED


def is_wanted(feature: str) -> bool:
    """Tell whether the commit tier exercises a feature as long as its budget lasts."""
    return feature.partition("=")[0] in WANTED
