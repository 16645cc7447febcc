"""The command `harness soak`: rejected arguments, exit codes, and stored files."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from fakes.progress import FakeProgress
from findings import soak_json
from soaked import P, play_steps, put

from harness.cli.main import cli
from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, EXIT_UNKNOWN, UsageError
from harness.json_codec import from_json
from harness.judge.verdict import ANOMALY, AS_EXPECTED, CLEAN, EXIT_CODES, UNKNOWN, RoundLine
from harness.run_folder.store import RunFolder
from harness.soak.campaign import Soak, SoakOptions
from harness.soak.causes import read_expected
from harness.soak.draw.plan import Shape
from harness.soak.play.rig import find_setup
from harness.soak.play.round import write_round
from harness.spark.options import SparkOptions


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ([], EXIT_UNKNOWN),
        ([CLEAN, CLEAN], EXIT_CLEAN),
        ([CLEAN, UNKNOWN], EXIT_UNKNOWN),
        ([ANOMALY, UNKNOWN, CLEAN], EXIT_ANOMALY),
        ([CLEAN, AS_EXPECTED], EXIT_CLEAN),
        ([AS_EXPECTED, UNKNOWN], EXIT_UNKNOWN),
    ],
)
def test_the_worst_round_decides(tmp_path: Path, verdicts: list[str], code: int) -> None:
    options = SoakOptions("sim-kafka", 10.0, 1, tmp_path, SparkOptions())
    rounds = [from_json(RoundLine, line) for line in soak_json(*({"verdict": name} for name in verdicts))["rounds"]]
    result = Soak(RunFolder(tmp_path), options, find_setup("sim-kafka", Shape(), FakeProgress()), rounds)
    assert EXIT_CODES[result.verdict] == code
    assert result.result().verdict == result.verdict


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give --target"),
        (["--target", "kafka-9.9"], "unknown target"),
        (["--target", "redpanda-26.2"], "soak is for Kafka and sim-kafka"),
        (["--target", "sim-kafka", "--gate", "--expect", "{known}"], "leave out --expect"),
        (["--target", "sim-kafka", "--gate"], "--gate is for brokers of this host"),
        (["--target", "sim-kafka", "--expect", "{nowhere}"], "is not a file"),
        (["--target", "sim-kafka", "--schedule", "{known}"], "is not JSON"),
        (["--target", "sim-kafka", "--schedule", "{round}", "--rate", "5"], "leave out --rate"),
        (["--target", "sim-kafka", "--shrink", "stuck-lso"], "--shrink NAME also needs --schedule FILE"),
        (["--target", "kafka-4.4", "--shrink", "stuck-lso", "--schedule", "{round}"], "give --target sim-kafka"),
        (["--resume", "{folder}"], "is not the folder of a soak"),
        (["--resume", "{folder}", "--seed", "2"], "leave out --seed"),
        (["--target", "sim-kafka", "--minutes", "0"], "--minutes"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, arguments: list[str], message: str) -> None:
    known, path = tmp_path / "known.toml", tmp_path / "round.json"
    known.write_text('[[expect]]\nfindings = ["stuck-lso"]\nwhy = "known"\n')
    write_round(path, play_steps(tmp_path / "played", (1, put(P))))
    names = {"known": known, "nowhere": tmp_path / "nowhere", "round": path, "folder": tmp_path}
    words = [word.format(**names) for word in arguments]
    results = [] if "--resume" in words else ["--results", str(tmp_path / "results")]
    done = CliRunner().invoke(cli, ["soak", *results, *words])
    assert done.exit_code != 0
    assert message in f"{done.output}{done.stderr}{done.exception}"
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("expect = 1", "must consist of [[expect]] entries"),
        ("[[expect]]\nfindings = ['stuck-lso']", "entry 1: give findings"),
        ("[[expect]]\nfindings = ['stuck-lso']\nwhy = ''", "entry 1: give findings"),
        ("[[expect]]\nfindings = ['stuck']\nwhy = 'x'", "did you mean stuck-lso"),
        ("[[expect]]\nfindings = ['unexplained']\nwhy = 'x'", "unknown finding"),
        ("[[expect", "is not TOML"),
    ],
)
def test_known_findings_are_read_and_another_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "known.toml"
    path.write_text('[[expect]]\nfindings = ["stuck-lso", "tombstone-divergence"]\nwhy = "its own timers"\n')
    assert read_expected(path) == {"stuck-lso": "its own timers", "tombstone-divergence": "its own timers"}
    path.write_text(text)
    with pytest.raises(UsageError) as error:
        read_expected(path)
    assert message in str(error.value)


def test_what_rounds_do_not_draw_is_known_before_anything_starts() -> None:
    setup = find_setup("sim-kafka", Shape(), FakeProgress())
    assert not setup.shape.is_real
    assert {"one-way", "group offsets", "topic setting compression.type"} <= setup.left_out.keys()
    assert not setup.left_out.keys() & setup.faults.keys()
