"""``harness audit disk`` at the command line: exit codes, one sentence for bad input, text and JSON."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from checker_cases.transactions import END, T1
from copied import copy, write_copies
from literal import delete, put
from pyspark.sql import SparkSession

from harness.audit import judge_copies
from harness.cli.audit import parse_brokers
from harness.cli.main import cli
from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, EXIT_UNKNOWN, UsageError

Command = Callable[..., tuple[int, str]]
COMMAND_S = 120
EPOCHS = {0: 0}
AGREE = (copy(1, delete(1, "K"), END, epochs=EPOCHS), copy(2, put(0, "K"), delete(1, "K"), END, epochs=EPOCHS))
DIFFER = (copy(1, delete(1, "K"), END, epochs=EPOCHS), copy(2, put(0, "K"), END, epochs=EPOCHS))


@pytest.mark.parametrize("text", ["", "1", "=d", "1=", "-1=d", "²=d", "1 =d", "one=a"])
def test_brokers_that_are_no_brokers(text: str) -> None:
    with pytest.raises(UsageError, match=r"give it as ID=DIR, such as 1=/backup/broker-1$"):
        parse_brokers([text], {})


def test_brokers_with_several_folders() -> None:
    folders = parse_brokers(["1=a", "2=b", "1=c=d"], {})
    assert {broker: [str(path) for path in paths] for broker, paths in folders.items()} == {1: ["a", "c=d"], 2: ["b"]}


@pytest.fixture
def command(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Run ``harness audit disk`` on the log directories 1 and 2 here, in the tests' own session."""
    monkeypatch.setattr(judge_copies, "session_of", lambda *_: nullcontext(spark))
    monkeypatch.chdir(tmp_path)

    def run(*more: str) -> tuple[int, str]:
        arguments = ["audit", "disk", "--topic", "t*", "--broker", "1=1", "--broker", "2=2", *more]
        code = cli.main(arguments, prog_name="harness", standalone_mode=False)
        return code, capsys.readouterr().out

    return run


def test_clean_copies(command: Command, tmp_path: Path) -> None:
    write_copies(tmp_path, *AGREE)
    code, text = command()
    assert code == EXIT_CLEAN
    assert re.fullmatch(r"0 of 1 partition diverged, 1 agrees   \(cluster literal, .*\)\n\(exit code 0\)\n", text)


def test_diverged_copies(command: Command, tmp_path: Path) -> None:
    write_copies(tmp_path, *DIFFER)
    (tmp_path / "1" / "t-1.AAAAAAAAAAAAAAAAAAAAAQ-stray").mkdir()
    code, text = command("--output", "a.json", "--junit", "a.xml", "--verbose")
    assert code == EXIT_ANOMALY
    summary, kind, meaning, evidence, printed, means, do, *commands, note, then, end = text.splitlines()
    assert summary.startswith("1 of 1 partition diverged, 0 agree   (cluster literal, ")
    assert kind == "ANOMALY      tombstone-divergence: t-0: broker 2 is wrong"
    assert meaning.startswith("  Meaning    a deleted key still has its value on broker 2")
    assert evidence.startswith("  Evidence   broker 2, t-0, offset 0: deleted key K is back")
    assert printed.startswith("ANOMALY tombstone-divergence: broker 2, t-0, offset 0: deleted key K is back")
    assert means.startswith("  what it means: a deleted key still has its value on broker 2")
    assert do.startswith("  what to do: rebuild the replica with harness repair, or by hand: pause compaction, ")
    assert commands[0] == "    BOOTSTRAP=HOST:PORT"
    assert any("kafka-reassign-partitions.sh" in command for command in commands)
    assert note.endswith("t-1.AAAAAAAAAAAAAAAAAAAAAQ-stray: not a replica in use: left out")
    assert then == "next         harness repair a.json --bootstrap-server HOST:PORT --plan"
    assert end == "(exit code 1)"
    assert json.loads((tmp_path / "a.json").read_text())["verdict"] == "anomaly"
    assert "<testcase" in (tmp_path / "a.xml").read_text()


def test_diverged_copies_as_json(command: Command, tmp_path: Path) -> None:
    write_copies(tmp_path, *DIFFER)
    code, text = command("--format", "json")
    assert code == EXIT_ANOMALY
    content: dict[str, Any] = json.loads(text)
    assert (content["schema"], content["verdict"], content["notes"]) == (1, "anomaly", [])
    assert content["reason"].startswith("tombstone-divergence: broker 2, t-0, offset 0: deleted key K is back")
    ids = {"t": "AAAAAAAAAAAAAAAAAAAAAQ"}
    assert content["target"] == {"name": "copies", "cluster_id": "literal", "brokers": [1, 2], "topic_ids": ids}
    assert content["timings_s"].keys() == {"check"}
    (partition,) = content["scenarios"]
    names = ("scenario", "anomaly", "payload", "verdict")
    assert [partition[name] for name in names] == ["t-0", None, None, "anomaly"]
    assert [replica["bound"] for replica in partition["exposure"]["replicas"]] == [10, 10]
    (finding,) = content["findings"]
    facts = ("anomaly", "candidates", "broker", "topic", "partition", "offset", "key", "producer_id", "effect")
    assert [finding[name] for name in facts] == ["tombstone-divergence", [], 2, "t", 0, 0, {"text": "K"}, -1, "visible"]
    assert finding["explanation"] == partition["reason"]
    assert finding["witness"]["deleted_at"] == 1
    assert (finding["decided"], finding["right"]) == (True, [1])
    assert "remove broker 2 from the replicas" in finding["do"]


def test_what_cannot_be_reported_of_one_partition_of_two(command: Command, tmp_path: Path) -> None:
    write_copies(tmp_path, copy(1, put(0, "K", T1), END), copy(2, put(0, "K", T1), END))
    for broker in ("1", "2"):
        (tmp_path / broker / "t-0").rename(tmp_path / broker / "t2-3")
    write_copies(tmp_path / "more", copy(1, END))
    (tmp_path / "more" / "1" / "t-0").rename(tmp_path / "1" / "t-0")
    code, text = command()
    assert code == EXIT_UNKNOWN
    summary, cause, why, *_, end = text.splitlines()
    assert summary.startswith("0 of 2 partitions diverged, 1 undecided, 1 agrees ")
    assert cause == "UNKNOWN      not-comparable: t-0"
    assert why == "  Why        there is only the replica of broker 1, and nothing to compare it with"
    assert end == "(exit code 2)"


def test_a_whole_audit_in_a_process_of_its_own(tmp_path: Path) -> None:
    write_copies(tmp_path, *DIFFER)
    words = ["audit", "disk", "--topic", "t", "--broker", "1=1", "--broker", "2=2", "--format", "json"]
    done = subprocess.run(
        [sys.executable, "-m", "harness.cli.main", *words], stdin=subprocess.DEVNULL,
        capture_output=True, text=True, cwd=tmp_path, timeout=COMMAND_S, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr + done.stdout, done.stderr
    assert done.returncode == EXIT_ANOMALY, done.stderr
    assert [printed["anomaly"] for printed in json.loads(done.stdout)["findings"]] == ["tombstone-divergence"]
    assert "start Spark" in done.stderr
    # Nothing is written where it runs.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2"]
