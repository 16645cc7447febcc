"""The track record: its table against the bugs that can be shown, and against the recorded results."""

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
_SEEN_ROW = re.compile(
    r"^\| \[(?P<issue>KAFKA-\d+)\].* \| (?P<seen>[\d.]+) \| (?P<not_seen>[\d.]+) \| (?P<took_s>[\d.]+) s \| .*\|$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Row:
    issue: str
    seen: str
    not_seen: str
    took_s: float


ROWS = [Row(row["issue"], row["seen"], row["not_seen"], float(row["took_s"])) for row in _SEEN_ROW.finditer(PAGE)]


def test_the_table_has_every_bug_that_can_be_shown() -> None:
    assert [(row.issue, row.seen, row.not_seen) for row in ROWS] == [
        (bug.issue, bug.affected, bug.fixed) for bug in BUGS
    ]


def test_at_least_four_were_seen_on_the_affected_version_and_not_on_a_fixed_one() -> None:
    assert len(ROWS) >= 4


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.issue)
def test_a_row_is_what_was_recorded(row: Row) -> None:
    recorded = {one["version"]: one for one in RECORD if one["issue"] == row.issue}
    assert recorded[row.seen]["seen"] is True
    assert recorded[row.seen]["took_s"] == row.took_s
    assert recorded[row.not_seen]["seen"] is False


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.issue)
def test_the_page_says_what_was_seen(row: Row) -> None:
    assert f"- **{row.issue}**: " in PAGE


def test_every_bug_of_the_page_is_in_one_table() -> None:
    issues = re.findall(r"^\| \[(KAFKA-\d+)\]", PAGE, re.MULTILINE)
    assert len(issues) == len(set(issues))
    wanted = ("17076", "17306", "19862", "20254", "20452", "21102", "21117", "13727", "13194", "8351")
    assert {f"KAFKA-{number}" for number in wanted} <= set(issues)


def test_versions_before_the_oldest_line_are_set_up_as_that_line() -> None:
    assert target_of("3.0.2").version == "3.0.2"
    assert target_of("4.2.0").name == "kafka-4.2.0"
    with pytest.raises(UsageError):
        target_of("2.7.0")
