"""A whole run on simulated brokers, without its verdict: the runner, its workloads and faults, and a run folder."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.cluster.boot import cluster_on, equip
from harness.host.clock import RealClock
from harness.models.clock import VirtualClock
from harness.play.options import RunOptions
from harness.play.run_plan import RunPlan, plan_run
from harness.play.run_player import RunPlayer
from harness.run_folder.store import RunFolder
from harness.runtimes import SIM
from harness.runtimes.base import ClusterSpec, RuntimeRequest

NOBODY: Any = None
OF_BROKERS = ("brokers", "fetched", "history.jsonl", "observations.jsonl")


@dataclass(frozen=True)
class Simulated:
    """A run that went to its end: ``stages`` as they were printed, ``took_s`` of virtual time it took."""

    folder: RunFolder
    plan: RunPlan
    stages: list[str]
    took_s: float


def digest(run: Path) -> str:
    """Return a digest of the brokers' files and the clients' history of a run."""
    hashed = hashlib.sha256()
    files = [path for path in run.rglob("*") if path.is_file()]
    for path in sorted(files):
        name = path.relative_to(run)
        if name.parts[0] in OF_BROKERS:
            hashed.update(f"{name.as_posix()}\n".encode() + path.read_bytes())
    return hashed.hexdigest()


def simulate(
    path: Path, target: str, anomaly: str = "all", *, see: Callable[[RunPlayer], object] = id, **options: Any
) -> Simulated:
    """Go through a run with seed 1, or another one; ``see`` gets the player first. Raises as `RunPlayer.run` does."""
    plan = plan_run(RunOptions(target, anomaly, **{"seed": 1, **options}))
    path.mkdir(parents=True)
    clock = VirtualClock(RealClock().check_limit)
    spec = ClusterSpec(
        "run", path, path / "logs", plan.broker_settings, brokers=plan.placement.brokers, clock=clock, seed=plan.seed
    )
    messages: list[str] = []
    equipment = equip(RuntimeRequest(plan.target, NOBODY, NOBODY), SIM, has_jvm_clients=False)
    with (
        cluster_on(equipment, spec, settle_s=plan.timers.settle_s) as cluster,
        plan.system.client(cluster.runtime, plan.options.client)(NOBODY) as library,
    ):
        player = RunPlayer(plan, cluster, library, RunFolder(path), messages.append)
        see(player)
        player.run()
    return Simulated(RunFolder(path), plan, messages, clock.now_s())
