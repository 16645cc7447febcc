"""Rounds of a soak on simulated brokers."""

from dataclasses import replace
from pathlib import Path

from fakes.progress import FakeProgress

from harness.host.clock import RealClock
from harness.run_folder.store import RunFolder
from harness.schedules.generators import Generator, fixed
from harness.schedules.operations import ABORT, COMMIT, Die, End, Heal, Inject, Operation, Write
from harness.schedules.schedule import RoundClient, RoundPlan, RoundTopic, Step
from harness.soak.causes import diagnose
from harness.soak.causes.cause import RoundEvidence, symptoms_of
from harness.soak.draw.plan import Shape, draw_plan
from harness.soak.draw.workload import generator_of
from harness.soak.evidence.replica_log import Replica
from harness.soak.judge.round_verdict import UNEXPLAINED
from harness.soak.play.rig import booted, find_setup
from harness.soak.play.round import PlayedRound, play_round

TOPIC = "soak-1-0"
SETTINGS = {
    "segment.ms": "100", "delete.retention.ms": "300", "max.compaction.lag.ms": "200",
    "min.cleanable.dirty.ratio": "0.0001",
}  # fmt: skip
T, TWIN = (RoundClient(name, "librdkafka", "id") for name in ("t", "t-twin"))
P = RoundClient("p", "librdkafka")
SMALL = RoundPlan(1, (RoundTopic(TOPIC, 1, SETTINGS),), (T, TWIN, P), lasts_s=20.0)


def put(client: RoundClient, key: str = "k", *, deletes: bool = False) -> Write:
    return Write(client.name, key, deletes, TOPIC, 0)


KILL, START = Inject("kill", 2), Heal("kill", 2)
PAUSE, RESUME = Inject("pause", 2), Heal("pause", 2)
COMMITS, ABORTS, DIES = End(T.name, COMMIT), End(T.name, ABORT), Die(T.name)


def play(folder: Path, generator: Generator, plan: RoundPlan = SMALL, seed: int = 1) -> PlayedRound:
    folder.mkdir(parents=True)
    setup = find_setup("sim-kafka", Shape(), FakeProgress())
    with booted(setup, "a test", folder, folder / "logs", RealClock(), seed) as rig:
        return play_round(rig, replace(plan, seed=seed), generator, RunFolder(folder))


def play_steps(folder: Path, *timed: tuple[float, Operation]) -> PlayedRound:
    return play(folder, fixed(*(Step(at_s, operation) for at_s, operation in timed)))


def play_drawn(folder: Path, seed: int, partitions: int = 6) -> PlayedRound:
    setup = find_setup("sim-kafka", Shape(partitions=partitions, clients=8, rate_hz=60.0), FakeProgress())
    plan = draw_plan(seed, "soak-1", setup.shape)
    return play(folder, generator_of(plan, setup.shape, setup.faults), plan, seed)


def names_by_replica(evidence: RoundEvidence) -> dict[Replica, set[str]]:
    """Return the names of what each wrong replica is wrong about, by what clients know."""
    names: dict[Replica, set[str]] = {}
    symptoms = symptoms_of(evidence.truth)
    diagnoses = diagnose(evidence, symptoms)
    for symptom in symptoms:
        name = diagnoses[symptom].name if symptom in diagnoses else UNEXPLAINED
        names.setdefault((symptom.broker, symptom.partition), set()).add(name)
    return names
