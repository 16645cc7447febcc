"""`bench/cleaner_passes.py`: Kafka's cleaner does what the model says, and an error in it is found."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench" / "cleaner_passes.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, BENCH, *arguments], capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.commit("kafka-4.4")
@pytest.mark.parametrize("target", ["kafka-3.9", "kafka-4.2", "kafka-4.4"])
def test_stock_cleaners_do_what_the_model_says(target: str) -> None:
    done = run("--target", target, "--cases", "30", "--seed", "200")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{target}: " in done.stdout
    assert "; 0 differences" in done.stdout


@pytest.mark.commit
def test_markers_that_are_dropped_after_a_split_are_noticed() -> None:
    done = run("--planted", "--cases", "6", "--seed", "480")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "seed " in done.stdout
    assert "last stable offset" in done.stdout
    assert "Merge()" in done.stdout
