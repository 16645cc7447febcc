"""After the verdict's evidence is complete: the view of a real application on top of the diverged topics.

The application starts from scratch for each step: first while replicas that stayed lead its topics, then while a
replica that was absent leads them, and then as at first, with the local state of the step before. Its views are
compared in `harness.judge.consequences`.

Schema (``applications.jsonl``), one line an application, topic and view of it, and step:

    time_ms, application, version
    step       staying-leads | absent-leads | staying-leads-again
    leader     int   the broker that leads the topic
    absent     int   the absent broker that leads, or led in the step before; null in the first step
    topic, view      what reads the topic, as the application names it
    state            the application's own word for its state
    running_s  float seconds from its start until it was ready; null where it was not within watched_s
    watched_s  float
    entries    dict  what its user can query; null where that is refused
    error            the application's words for that; null

``application-history.jsonl`` has what a plain read_committed consumer was given from the same leaders, in the schema of
``history.jsonl``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING, Final

from harness.clients import ClientSpec
from harness.cluster.cluster import Cluster
from harness.errors import HarnessError, UsageError, raised_as
from harness.judge.consequences import ABSENT, AGAIN, STAYING
from harness.play.served import read_served
from harness.run_folder.history import History
from harness.run_folder.store import APPLICATION_HISTORY, APPLICATIONS, RunFolder
from harness.schedules.placement import led_by
from harness.schedules.scenario import Phase
from harness.targets import SIMULATED, Target
from harness.targets.jars import RELEASES, JarSet, OnProgress, jars_of
from workloads.applications import PLUGINS, Application, Life, Observe

if TYPE_CHECKING:
    from harness.play.run_plan import RunPlan

PARTITION: Final = 0


@dataclass(frozen=True)
class Installed:
    """An application of a release, with its jars; None for an application of a plugin."""

    application: Application
    version: str
    jars: JarSet | None


def install(application: Application, target: Target, on_progress: OnProgress) -> Installed:
    """Return the application with the release that fits a target. Raises `UsageError` as `jars_of` does."""
    jars = jars_of(application.name, target, on_progress) if application.name in RELEASES else None
    return Installed(application, _version(application, target), jars)


def _version(application: Application, target: Target) -> str:
    if application.name in RELEASES:
        return RELEASES[application.name].version_for(target)
    if target.system in SIMULATED:
        raise UsageError(f"an application needs real brokers, and {target.name} is simulated")
    return PLUGINS.origin(application.name)


@dataclass
class Trial:
    """Takes an application through its steps on a cluster whose outage is over."""

    plan: RunPlan
    cluster: Cluster
    installed: Installed
    observe: Observe
    history: History
    file: IO[str]
    progress: Callable[[str], None]

    def run(self) -> None:
        """Go through the steps. Raises `HarnessError` where one cannot be completed."""
        self.cluster.lead({tp: self.cluster.replicas[tp] for tp in self.cluster.exposed})
        self._step(STAYING, None, "as-it-should-be")
        for absent in self.plan.placement.absent:
            state = f"broker-{absent}"
            self._step(ABSENT, absent, state)
            self._step(AGAIN, absent, state)

    def _step(self, name: str, absent: int | None, state: str) -> None:
        title, cluster = self.installed.application.name, self.cluster
        exposed = {topic for topic, _ in cluster.exposed}
        topics = self.installed.application.topics([s for s in self.plan.scenarios if s.name in exposed])
        self.progress(f"{title}: {f'broker {absent} leads' if name == ABSENT else 'brokers lead that stayed'}")
        replicas = {tp: cluster.replicas[tp] for tp in ((topic, PARTITION) for topic in topics)}
        orders = {tp: led_by(absent if absent and name == ABSENT else row[0], row) for tp, row in replicas.items()}
        cluster.lead(orders)
        leader = next(iter(orders.values()))[0]
        reading = read_served(self.plan, cluster, self.history, leader, [*replicas], Phase.APPLICATION)
        last = {t: {str(it["key"]): it["value"] for it in reading.delivered[t, PARTITION]} for t in topics}
        consumed = {t: {key: value for key, value in last[t].items() if value is not None} for t in topics}
        observations = self.observe(Life(name, topics, state, consumed))
        now = cluster.control.states(topics)
        if any(tp not in now or now[tp].leader != leader for tp in replicas):
            raise HarnessError(f"broker {leader} did not lead {', '.join(topics)} to the end of the step {name}")
        of_step = {"version": self.installed.version, "step": name, "leader": leader, "absent": absent}
        for shown in observations:
            line = {"time_ms": cluster.clock.time_ms(), "application": title, **of_step, **shown}
            self.file.write(json.dumps(line) + "\n")


def raise_if_unfit(plan: RunPlan, application: Application, *, has_login: bool) -> None:
    """Raise `UsageError` where the application cannot show anything, or was not tried."""
    flag = f"--application {application.name}"
    with raised_as(UsageError, flag, UsageError):
        _version(application, plan.target)
    if has_login:
        raise UsageError(f"{flag} was not tried with a login: leave out --command-config")
    if plan.placement.partitions != 1:
        raise UsageError(
            f"{flag}: the harness writes the same keys to every partition, and an application reads each as one key:"
            " leave out --partitions"
        )


def follow(
    plan: RunPlan,
    cluster: Cluster,
    folder: RunFolder,
    progress: Callable[[str], None],
    *,
    installed: Installed,
    client: ClientSpec,
) -> None:
    """Go through the steps and write ``applications.jsonl`` and ``application-history.jsonl``.

    ``client``: how the run's own clients reach the brokers. Raises `HarnessError` or OSError where a step cannot be
    completed; the files keep what was observed before.
    """
    classpath = installed.jars.classpath if installed.jars else client.classpath
    spec = replace(client, classpath=classpath, log_path=folder.path / f"{installed.application.name}.log")
    with ExitStack() as owned:
        file = owned.enter_context((folder.path / APPLICATIONS).open("x", buffering=1))
        history = owned.enter_context(closing(History(folder.path / APPLICATION_HISTORY, cluster.clock)))
        observe = owned.enter_context(installed.application.opened(spec, cluster.clock))
        Trial(plan, cluster, installed, observe, history, file, progress).run()
