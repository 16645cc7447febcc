"""The track record: its cards against the bugs that can be shown, and against the recorded results."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from known_bugs import BUGS
from known_bugs_rig import target_of

from harness.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "explanation" / "track-record.md").read_text()
RECORD = [json.loads(line) for line in (ROOT / "results" / "track-record.jsonl").read_text().splitlines()]
FIELDS = ["Symptom", "Versions", "Reproduce", "Upstream", "Details"]
_CARDS = dict(re.findall(r"^### (.+)\n((?:(?!#).*\n)*)", PAGE, re.MULTILINE))


@dataclass(frozen=True)
class Card:
    issue: str
    seen: str
    not_seen: str
    took_s: float


def card(issue: str, text: str) -> Card:
    line = " ".join(text.split())
    seen, not_seen = re.findall(r"Seen on ([\d.]+), not on ([\d.]+)\.", line)[0]
    (took_s,) = re.findall(rf"`python bench/known_bugs.py show {issue}` \(([\d.]+) s", line)
    return Card(issue, seen, not_seen, float(took_s))


CARDS = [card(issue, text) for issue, text in _CARDS.items() if issue.startswith("KAFKA-")]


def test_every_bug_that_can_be_shown_has_a_card() -> None:
    bugs = [(bug.issue, bug.affected, bug.fixed) for bug in BUGS]
    assert [(card_.issue, card_.seen, card_.not_seen) for card_ in CARDS] == bugs


@pytest.mark.parametrize("text", _CARDS.values(), ids=_CARDS)
def test_a_card_has_every_field(text: str) -> None:
    assert re.findall(r"^- \*\*(\w+):\*\* \S", text, re.MULTILINE) == FIELDS


@pytest.mark.parametrize("of", CARDS, ids=lambda of: of.issue)
def test_a_card_is_what_was_recorded(of: Card) -> None:
    recorded = {one["version"]: one for one in RECORD if one["issue"] == of.issue}
    assert recorded[of.seen]["seen"] is True
    assert recorded[of.seen]["took_s"] == of.took_s
    assert recorded[of.not_seen]["seen"] is False


def test_every_bug_of_the_page_is_described_once() -> None:
    issues = re.findall(r"^(?:\| \[|### )(KAFKA-\d+)", PAGE, re.MULTILINE)
    assert len(issues) == len(set(issues))
    wanted = ("17076", "17306", "19862", "20254", "20452", "21102", "21117", "13727", "13194", "8351")
    assert {f"KAFKA-{number}" for number in wanted} <= set(issues)


def test_versions_before_the_oldest_line_are_set_up_as_that_line() -> None:
    assert target_of("3.0.2").version == "3.0.2"
    assert target_of("4.2.0").name == "kafka-4.2.0"
    with pytest.raises(UsageError):
        target_of("2.7.0")
