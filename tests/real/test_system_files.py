"""Kafka as a system of the user's own, by the file of docs/extending/own-system.md."""

import re
from collections import Counter
from pathlib import Path

from sandbox import Ran, Sandbox

from harness.errors import EXIT_ANOMALY, EXIT_CLEAN
from harness.targets import find_target
from harness.targets.jars import jars_for

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "extending" / "own-system.md").read_text()
FILE = ROOT / "examples" / "systems" / "kafka.toml"


def outcome(ran: Ran) -> tuple[dict[str, str], Counter[tuple[str, int, str]]]:
    """Return the verdict of each scenario, and its findings by kind, broker and effect."""
    verdicts = {scenario["scenario"]: scenario["verdict"] for scenario in ran.verdict["scenarios"]}
    return verdicts, Counter((f["anomaly"], f["broker"], f["effect"]) for f in ran.verdict["findings"])


def test_kafka_through_the_own_door_has_the_verdict_of_the_built_in_target(sandbox: Sandbox) -> None:
    jars_for(find_target("kafka-4.4"))
    (target, anomaly) = re.findall(r"harness run --target (\S+kafka.toml) --anomaly (\S+)", PAGE)[0]
    assert ROOT / target == FILE
    options = ("--anomaly", anomaly, "--format", "json")
    own, built_in = (sandbox.run(name, *options).end(EXIT_ANOMALY) for name in (str(FILE), "kafka-4.4"))
    assert outcome(own) == outcome(built_in)
    assert own.verdict["notes"] == [f"the target {own.verdict['target']['name']} is your own"]
    assert built_in.verdict["target"]["status"] == ""


def test_kafka_delivers_the_records_that_clients_committed(sandbox: Sandbox) -> None:
    ran = sandbox.run(str(FILE), "--anomaly", "served", "--format", "json").end(EXIT_CLEAN)
    assert set(outcome(ran)[0].values()) == {"clean"}
