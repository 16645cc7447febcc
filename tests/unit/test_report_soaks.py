"""Pages of soaks: the stored facts of a round, and its pictures."""

import json
from pathlib import Path
from typing import Any

import pytest
from findings import soak_json
from soaked import COMMITS, KILL, START, TOPIC, T, play_steps, put

from harness.report.site import write_site
from harness.report.soak_pages import draw_round, lags, replay_command, unstable, write_pages
from harness.report.stored import ClientOperation, FaultSpan, read_round, read_soak
from harness.run_folder.store import HISTORY, OFFSETS, REPORT, ROUND, SOAK_STATE, VERDICT, WHOLE_HISTORY
from harness.soak.play.round import write_round

FINDING = {
    "anomaly": "stuck-lso", "broker": 2, "topic": TOPIC, "partition": 0, "count": 1, "found_by": ["clients"],
    "explanation": "<b>frozen</b>", "witness": {},
}  # fmt: skip
STATE = soak_json(
    {"verdict": "anomaly", "findings": {"stuck-lso": 1}}, {"name": "soak-2"},
    not_drawn={"ring": "takes five brokers"}, audit={"diverged": 1},
)  # fmt: skip
VERDICT_OF_ROUND = {"verdict": "clean", "reason": "a reason", "audit": None, "groups": None, "gates": None}


def written_soak(results: Path) -> Path:
    soak = results / "sim-kafka" / "soak" / "2026-11-25T00-00-00Z-0000"
    played = play_steps(soak / "soak-1", (1.0, put(T)), (2.0, KILL), (8.0, START), (9.0, COMMITS))
    assert played.failure is None
    write_round(soak / "soak-1" / ROUND, played)
    verdict = {**VERDICT_OF_ROUND, "verdict": "anomaly", "seed": 7, "findings": [FINDING]}
    (soak / "soak-1" / VERDICT).write_text(json.dumps(verdict))
    (soak / SOAK_STATE).write_text(json.dumps(STATE))
    return soak


@pytest.mark.parametrize("name", ["d/../../../../../../soak-1", "../2026-11-25T00-00-00Z-0000/soak-1", "linked", ".."])
def test_a_round_is_a_folder_of_its_soak(tmp_path: Path, name: str) -> None:
    soak = tmp_path / "results" / "sim-kafka" / "soak" / "2026-11-25T00-00-00Z-0000"
    for folder in ("soak-1", "brokers", "1/2/3/4/5/6"):
        (soak / folder / "brokers").mkdir(parents=True)
    (soak / "d").symlink_to("1/2/3/4/5/6")
    (tmp_path / "elsewhere" / "brokers").mkdir(parents=True)
    (soak / "linked").symlink_to(tmp_path / "elsewhere")
    (soak / SOAK_STATE).write_text(json.dumps(soak_json({"name": name}, {"name": "soak-1"})))
    assert read_soak(soak, "a/soak/b").with_evidence == ("soak-1",)


def event(at_ms: int, kind: str, f: str, op: int, broker: int | None = None) -> dict[str, Any]:
    of_whom = {"process": "t"} if broker is None else {"process": "nemesis", "brokers": [broker]}
    return {"type": kind, "time_ms": at_ms, "f": f, "op": op, **of_whom}


def written_round(folder: Path, count: int | None = None, name: str = HISTORY) -> Path:
    for path, lines in ((name, EVENTS[:count]), (OFFSETS, SAMPLES), (ROUND, [{}]), (VERDICT, [VERDICT_OF_ROUND])):
        (folder / path).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return folder


EVENTS = [
    event(1000, "invoke", "produce", 1), event(1250, "ok", "produce", 1),
    event(2000, "invoke", "inject kill", 2, 2), event(2100, "ok", "inject kill", 2, 2),
    event(2200, "invoke", "commit", 3), event(2500, "invoke", "inject slow", 4, 1), event(5200, "info", "commit", 3),
    event(6000, "invoke", "heal kill", 5, 2), event(6100, "info", "heal kill", 5, 2),
    event(6200, "invoke", "heal kill", 6, 2), event(6400, "ok", "heal kill", 6, 2),
]  # fmt: skip
SAMPLES = [
    {"time_ms": 1000, "broker": 1, "replicas": {"t-0": [4, 4, 2]}},
    {"time_ms": 1500, "broker": 2, "replicas": {"t-0": [3, 3, 3]}},
    {"time_ms": 3000, "broker": 1, "replicas": {"t-0": [9, 9, 9]}},
]


def test_a_round_has_operations_with_their_latency_faults_until_their_end_is_done_and_offsets(tmp_path: Path) -> None:
    played = read_round(written_round(tmp_path))
    assert played.operations == [
        ClientOperation("produce", "ok", 0.25, 0.25),
        ClientOperation("commit", "info", 4.2, 3.0),
    ]
    assert played.faults == [FaultSpan("kill", 2, 1.0, 5.4), FaultSpan("slow", 1, 1.5, None)]
    assert played.ends_s == pytest.approx(5.4)
    # A replica lags behind the longest one, and its unstable offsets are below its high watermark.
    assert lags(played, 1) == [([0.0, 0.5, 2.0], [0.0, 0.0, 0.0])]
    assert lags(played, 2) == [([0.0, 0.5, 2.0], [4.0, 1.0, 6.0])]
    assert unstable(played, 1) == [([0.0, 2.0], [2.0, 0.0])]
    assert unstable(played, 2) == [([0.5], [0.0])]
    whole = read_round(written_round(tmp_path, 2, WHOLE_HISTORY))
    assert len(whole.operations) == 1, "the whole history is read where there is one"


def test_pictures_name_operations_brokers_and_faults_and_replicas_have_none_without_samples(tmp_path: Path) -> None:
    folder = written_round(tmp_path)
    drawn = draw_round(read_round(folder))
    for svg, words in {
        drawn["rates"]: ("produce (1/s)", "commit (1/s)", "info", "slow", "kill"),
        drawn["latencies"]: ("commit (s)", "median", "99 %"),
        drawn["lags"]: ("broker 1 (offsets)", "broker 2 (offsets)"),
        drawn["unstable"]: ("broker 1 (offsets)",),
    }.items():
        assert svg.startswith("<svg")
        assert all(word in svg for word in words)
    (folder / OFFSETS).unlink()
    drawn = draw_round(read_round(folder))
    assert drawn["rates"]
    assert (drawn["lags"], drawn["unstable"]) == ("", "")


def test_a_played_round_has_the_offsets_of_every_replica_until_it_settles_and_its_command(tmp_path: Path) -> None:
    soak = written_soak(tmp_path)
    played = read_round(soak / "soak-1")
    assert list(played.replicas) == [1, 2, 3]
    (end,) = {offsets.log_end[-1] for places in played.replicas.values() for offsets in places.values()}
    assert end > 2
    assert [(span.fault, span.broker) for span in played.faults] == [("kill", 2)]
    ((_, killed),) = lags(played, 2)
    assert max(killed) > 0 == killed[-1]
    stored = read_soak(soak, "sim-kafka/soak/2026-11-25T00-00-00Z-0000")
    assert replay_command(stored, played) == (
        "harness soak --target sim-kafka --schedule"
        " results/sim-kafka/soak/2026-11-25T00-00-00Z-0000/soak-1/round.json --seed 7 --rounds 1"
    )


def test_a_soak_has_a_page_each_kept_round_has_one_and_the_reason_is_named_where_it_has_none(tmp_path: Path) -> None:
    soak = written_soak(tmp_path)
    assert write_pages(soak, "soak-2") is None
    assert f'href="soak-1/{REPORT}"' not in (soak / REPORT).read_text()
    assert write_pages(soak, "soak-1") is None
    assert f'href="soak-1/{REPORT}"' in (soak / REPORT).read_text()
    text = (soak / "soak-1" / REPORT).read_text()
    assert text.count("<svg") == 4
    assert "&lt;b&gt;frozen&lt;/b&gt;" in text
    assert f'href="../{REPORT}"' in text
    assert not (soak / "soak-2").exists()
    (soak / "soak-1" / ROUND).write_text("no JSON")
    assert str(write_pages(soak, "soak-1")).startswith("soak-1 has no page: JSONDecodeError")


def test_the_site_has_soaks_and_names_those_that_cannot_be_read(tmp_path: Path) -> None:
    soak = written_soak(tmp_path / "results")
    damaged = soak.with_name("2026-11-25T00-00-00Z-0001")
    damaged.mkdir()
    (damaged / SOAK_STATE).write_text("{}")
    site = write_site(tmp_path / "results", tmp_path / "out", lambda _: None)
    (left_out,) = site.left_out
    assert (site.runs, damaged.name in left_out) == ([], True)
    place = tmp_path / "out" / "soaks/sim-kafka/soak" / soak.name
    assert f'href="soaks/sim-kafka/soak/{soak.name}/index.html"' in (tmp_path / "out" / "index.html").read_text()
    text = (place / "index.html").read_text()
    assert 'href="soak-1.html"' in text
    assert 'href="../../../../index.html"' in text
    assert "<svg" in (place / "soak-1.html").read_text()
