"""The model does what real brokers and cleaners do: schedules and passes through both, compared after each step."""

import os
import sys
from pathlib import Path

import pytest
from sandbox import Sandbox, completed

from harness.errors import EXIT_CLEAN
from harness.model_checking.conform.schedules import GROUP_WAYS, WAYS

RANDOM = 6
FEWEST_STEPS = 20
BENCH = Path(__file__).parents[2] / "bench" / "cleaner_passes.py"
PATHS = {**os.environ, "PYTHONPATH": str(BENCH.parent)}
SEED = "1"
"""With it nothing is to be kept before time passes, for which a busy machine might take too long."""


@pytest.mark.parametrize(("target", "transactions"), [("kafka-3.9", 1), ("kafka-4.4", 1), ("kafka-4.4", 2)])
def test_the_model_does_what_real_brokers_do(sandbox: Sandbox, target: str, transactions: int) -> None:
    options = ("--target", target, "--transactions", str(transactions), "--seed", SEED)
    counts = ("--schedules", str(RANDOM), "--group-schedules", str(RANDOM))
    ran = sandbox.call("conform", *options, *counts, "--format", "json", code=EXIT_CLEAN)
    schedules = ran.verdict["schedules"]
    random = [f"random-{n}" for n in range(RANDOM)]
    assert [one["name"] for one in schedules] == [*WAYS, *random, *GROUP_WAYS, *(f"group-{name}" for name in random)]
    for one in schedules:
        assert one["disagreements"] == []
        assert one["agreed"] == len(one["steps"]) > FEWEST_STEPS
    sandbox.wait_until_nothing_is_left()


@pytest.mark.commit("kafka-4.4")
@pytest.mark.parametrize("target", ["kafka-3.9", "kafka-4.2", "kafka-4.4"])
def test_stock_cleaners_do_what_the_model_says(target: str) -> None:
    done = completed(sys.executable, BENCH, "--target", target, "--cases", "30", "--seed", "200", env=PATHS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{target}: " in done.stdout
    assert "; 0 differences" in done.stdout


@pytest.mark.commit
def test_markers_that_are_dropped_after_a_split_are_noticed() -> None:
    done = completed(sys.executable, BENCH, "--planted", "--cases", "9", "--seed", "485", env=PATHS)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "seed " in done.stdout
    assert "last stable offset" in done.stdout
    assert "Merge()" in done.stdout
