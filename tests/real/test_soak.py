"""A short soak on real brokers: a round goes to its end, and all that is promised of it is judged.

Findings are not asserted: faults and timing are random, and the soaks of the night report what they bring to light.
Of two rounds one may not go to its end: it gets a cluster that the faults of the other one have left.
"""

import json
from importlib import resources

import pytest
from sandbox import Sandbox

from harness.judge.verdict import EXIT_CODES
from harness.soak.evidence.internal_topics import INTERNAL

KNOWN = resources.files("harness.nightly") / "known.toml"


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_round_is_judged_with_the_offsets_of_groups(sandbox: Sandbox, rounds: int) -> None:
    ran = sandbox.call(
        "soak", "--target", "kafka-4.4", "--runtime", "local", "--rounds", str(rounds), "--seed", "1",
        "--partitions", "6", "--rate", "60", "--play", "12", "--expect", str(KNOWN),
        "--results", str(sandbox.results), "--format", "json",
    )  # fmt: skip
    assert ran.stdout, ran.output
    content = json.loads(ran.stdout)
    assert ran.code == EXIT_CODES[content["verdict"]], ran.output
    line = next((one for one in content["rounds"] if one["groups"] is not None), None)
    assert line is not None, f"no round went to its end: {ran.output}"
    assert line["operations"]
    # The view of each replica, and of each broker as the coordinator.
    assert line["groups"]["views"] == 6
    assert line["groups"]["keys"] > 0
    assert "FATAL" not in ran.stderr, "librdkafka's own lines are in the log of clients"
    folder = next((sandbox.results / "kafka-4.4" / "soak").glob(f"*/{line['name']}"))
    stored = json.loads((folder / "verdict.json").read_text())
    assert stored["verdict"] == line["verdict"]
    if stored["findings"]:
        copies = (folder / INTERNAL).glob("*/__cluster_metadata-0")
        assert sorted(path.parent.name for path in copies) == ["1", "2", "3"]
