"""The model does what real brokers do: schedules through both, every replica compared after every step."""

import pytest
from sandbox import Sandbox

from harness.errors import EXIT_CLEAN, EXIT_USAGE
from harness.model_checking.conform.schedules import GROUP_WAYS, WAYS

RANDOM = 6
FEWEST_STEPS = 20
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


@pytest.mark.commit
def test_what_a_version_does_not_have_is_refused(sandbox: Sandbox) -> None:
    ran = sandbox.call("conform", "--target", "kafka-3.9", "--transactions", "2")
    assert ran.code == EXIT_USAGE
    assert "choose one from kafka-4.0 on" in ran.stderr
