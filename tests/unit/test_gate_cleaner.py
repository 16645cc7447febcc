"""A broker's own cleaner with the agent: compaction waits, retention does not, and all goes once the ISR is full."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from java_cases import agent, classpath_of, compile_java, run_java

SOURCE = Path(__file__).parent / "gate_cases" / "RealCleaner.java"
TARGET = "kafka-4.4"
WRITTEN = "a=1 a=2 b=1 b=null c=1 COMMIT@5 d=1 COMMIT@7 c=2"
CLEANED = "a=2 d=1 COMMIT@7 c=2"


@pytest.fixture(scope="module")
def classpath(tmp_path_factory: pytest.TempPathFactory) -> str:
    classes = tmp_path_factory.mktemp("classes")
    compile_java(SOURCE, classes, classpath_of(TARGET))
    return os.pathsep.join([str(classes), classpath_of(TARGET)])


@pytest.mark.parametrize(
    ("options", "held"),
    [
        ("", WRITTEN),
        ("hold=markers", "a=2 b=null COMMIT@5 d=1 COMMIT@7 c=2"),
        ("except=orders", CLEANED),
    ],
)
def test_what_a_cleaner_leaves(classpath: str, tmp_path: Path, options: str, held: str) -> None:
    done = run_java(
        "compaction.gate.RealCleaner", classpath, flags=(agent().flag(options), f"-Dfolder={tmp_path.resolve()}")
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"written: {WRITTEN}",
        f"held: {held}",
        "deletable while held: true",
        f"released: {CLEANED}",
        "errors: 0",
    ]
