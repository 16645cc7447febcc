"""The track record: its cards against the bugs that can be shown, and against the recorded results."""

import json
import re
from pathlib import Path

import pytest
from known_bugs import BUGS, KnownBug
from known_bugs_rig import target_of

from harness.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "explanation" / "track-record.md").read_text()
RECORD = [json.loads(line) for line in (ROOT / "results" / "track-record.jsonl").read_text().splitlines()]
FIELDS = ["Symptom", "Versions", "Reproduce", "Upstream", "Details"]
_CARDS = dict(re.findall(r"^### (.+)\n((?:(?!#).*\n)*)", PAGE, re.MULTILINE))


def test_every_bug_that_can_be_shown_has_a_card_and_every_bug_is_described_once() -> None:
    assert [issue for issue in _CARDS if issue.startswith("KAFKA-")] == [bug.issue for bug in BUGS]
    issues = re.findall(r"^(?:\| \[|### )(KAFKA-\d+)", PAGE, re.MULTILINE)
    assert len(issues) == len(set(issues))
    wanted = ("17076", "17306", "19862", "20254", "20452", "21102", "21117", "13727", "13194", "8351")
    assert {f"KAFKA-{number}" for number in wanted} <= set(issues)


@pytest.mark.parametrize("text", _CARDS.values(), ids=_CARDS)
def test_a_card_has_every_field(text: str) -> None:
    assert re.findall(r"^- \*\*(\w+):\*\* \S", text, re.MULTILINE) == FIELDS


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.issue)
def test_a_card_is_what_was_recorded(bug: KnownBug) -> None:
    recorded = {line["version"]: line for line in RECORD if line["issue"] == bug.issue}
    assert (recorded[bug.affected]["seen"], recorded[bug.fixed]["seen"]) == (True, False)
    text = " ".join(_CARDS[bug.issue].split())
    assert f"Seen on {bug.affected}, not on {bug.fixed}." in text
    took_s = re.findall(rf"`python bench/known_bugs.py show {bug.issue}` \(([\d.]+) s", text)
    assert list(map(float, took_s)) == [recorded[bug.affected]["took_s"]]


def test_versions_before_the_oldest_line_are_set_up_as_that_line() -> None:
    assert target_of("3.0.2").version == "3.0.2"
    assert target_of("4.2.0").name == "kafka-4.2.0"
    with pytest.raises(UsageError):
        target_of("2.7.0")
