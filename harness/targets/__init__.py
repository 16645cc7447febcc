"""What is tested: one row a target, with the exact version that a short name stands for."""

from __future__ import annotations

from dataclasses import dataclass

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
    Target("kafka-4.4", "4.4.0", excluded_modules=("org.apache.kafka:kafka-tools-api",), note="kafka-tools-api 4.4.0 is not on Maven Central; brokers do without"),  # noqa: E501
)
# fmt: on

TARGETS: dict[str, Target] = {row.name: row for row in _ROWS}


def find_target(name: str) -> Target:
    """Return the target called ``name``.

    Raises UsageError with the nearest names and the list of all when there is none.
    """
    if name not in TARGETS:
        raise UsageError(nearest("target", name, list(TARGETS)))
    return TARGETS[name]
