"""A broker's own cleaner with the agent: compaction waits, retention does not, and all goes once the ISR is full."""

import os
from pathlib import Path

import pytest
from java_cases import agent, classpath_of, compile_java, run_java

from harness.protect.gate.events import HELD, INSTALLED, RELEASED, parse_line

CASES = Path(__file__).parent / "gate_cases"
TARGET = "kafka-4.4"
WRITTEN = "a=1 a=2 b=1 b=null c=1 COMMIT@5 d=1 COMMIT@7 c=2"
CLEANED = "a=2 d=1 COMMIT@7 c=2"


@pytest.fixture(scope="module")
def classpath(tmp_path_factory: pytest.TempPathFactory) -> str:
    classes = tmp_path_factory.mktemp("classes")
    compile_java(classes, CASES / "RealCleaner.java", CASES / "BrokerLog.java", libraries=classpath_of(TARGET))
    return os.pathsep.join([str(classes), classpath_of(TARGET)])


@pytest.mark.parametrize(
    ("options", "held", "passes"),
    [
        ("", WRITTEN, "aborted, aborted, aborted, swap aborted"),
        ("hold=markers", "a=2 b=null COMMIT@5 d=1 COMMIT@7 c=2", "aborted, aborted, aborted, swap aborted"),
        ("except=orders", CLEANED, "complete, complete, complete, swap complete"),
    ],
)
def test_what_a_cleaner_leaves(classpath: str, tmp_path: Path, options: str, held: str, passes: str) -> None:
    flags = (agent().flag(options), f"-Dfolder={tmp_path.resolve()}")
    done = run_java("compaction.gate.RealCleaner", classpath, flags=flags)
    assert done.returncode == 0, done.stderr
    events = [event for line in done.stderr.encode().splitlines() if (event := parse_line(line, 2))]
    expected = [] if options.startswith("except") else [HELD, RELEASED] * 3 + [HELD]
    assert [event["event"] for event in events] == [INSTALLED, *expected]
    assert done.stdout.splitlines() == [
        f"written: {WRITTEN}",
        f"held: {held}",
        "deletable while held: true",
        "jmx: 0 current" if options.startswith("except") else "jmx: 1 orders-0[2] current",
        f"released: {CLEANED}",
        f"passes: {passes}",
        "errors: 0",
    ]
