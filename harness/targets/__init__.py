"""What is tested: one row a line of versions, with the newest patch, for which its short name stands."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from harness.errors import UsageError
from harness.suggest import nearest


@dataclass(frozen=True)
class Target:
    """One version of the system under test, as Maven Central has it.

    ``excluded_modules`` are ``group:artifact`` names that its POMs ask for and that are left out; the
    ``note`` says why, or what else is special.
    """

    name: str
    version: str
    scala: str = "2.13"
    excluded_modules: tuple[str, ...] = ()
    note: str = ""


# fmt: off
_ROWS = (
    Target("kafka-3.9", "3.9.2", note="the last version that can also run with ZooKeeper"),
    Target("kafka-4.0", "4.0.2", note="the first version without ZooKeeper, and with transactions v2 by default"),
    Target("kafka-4.1", "4.1.2"),
    Target("kafka-4.2", "4.2.1", note="the newest line that the published post names"),
    Target("kafka-4.3", "4.3.1"),
    Target("kafka-4.4", "4.4.0", excluded_modules=("org.apache.kafka:kafka-tools-api",), note="kafka-tools-api 4.4.0 is not on Maven Central; brokers do without"),  # noqa: E501
)
# fmt: on

_PATCH = re.compile(r"(?P<line>kafka-\d+\.\d+)\.\d+(-rc\d+)?")

TARGETS: dict[str, Target] = {row.name: row for row in _ROWS}


def find_target(name: str) -> Target:
    """Return the target called ``name``: a line such as ``kafka-4.1``, or any exact patch, ``kafka-4.1.1``.

    A patch takes everything but its version from the row of its line. Raises UsageError with the nearest
    names and the list of all when there is none.
    """
    if name in TARGETS:
        return TARGETS[name]
    patch = _PATCH.fullmatch(name)
    if patch is None or patch["line"] not in TARGETS:
        raise UsageError(f"{nearest('target', name, list(TARGETS))}; an exact patch is kafka-4.1.1, say")
    return replace(TARGETS[patch["line"]], name=name, version=name.removeprefix("kafka-"))
