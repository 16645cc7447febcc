"""The guard's rounds: look, decide, keep what was found, change the settings, keep that they are changed.

    view ─▶ channel to its end ─▶ settings, where something is to be done ─▶ keep ─▶ settings again ─▶ change ─▶ keep

Settings of a thousand topics take seconds to read. So a pause is decided from what is known of covered topics,
and they are read once, just before the change.

Kafka has no compare-and-set for settings. So they are read again just before each change, and a topic whose settings
differ from those that the decision was made from waits for the next round. A change that somebody makes in the time
between this reading and the guard's request, some milliseconds, is overwritten; its value is lost.

A round that fails is repeated: nothing is remembered but what the channel has, and what is only reported.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from harness.broker_files.copies.selection import listed
from harness.errors import HarnessError, WaitTimeoutError
from harness.protect.guard import decide
from harness.protect.guard.changes import CHANGED, carry_out, keep_in
from harness.protect.guard.coverage import TopicCoverage
from harness.protect.guard.events import GuardEvent
from harness.protect.guard.journal import PausePhase, PauseState
from harness.protect.guard.settings import PAUSE, is_pause
from harness.protect.guard.status import GuardStatus
from harness.protect.guard.windows import Windows
from harness.run_folder.guard_events import GuardEventKind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from harness.host.clock import Clock
    from harness.protect.guard.decide import PauseStep
    from harness.protect.guard.journal import Pause
    from harness.protect.guard.ports import Channel, GuardedCluster, Leadership
    from harness.protect.guard.settings import Settings
    from harness.protect.guard.watch import ClusterView

ACT, DRY_RUN, OBSERVE = "act", "dry-run", "observe-only"
ALARMED_S: Final = 0.5
"""The longest interval while a broker has just stopped answering."""
END_S: Final = 10.0
"""For the last round, where brokers are away."""
MS: Final = 1000


@dataclass(frozen=True)
class Options:
    """How the guard works. ``patterns``: topics, () for every compacted one. ``mode``: one of the three above.

    ``release_exposed``: topics whose replicas are away are released, too (`harness guard release --exposed`).
    """

    patterns: tuple[str, ...] = ()
    interval_s: float = 2.0
    mode: str = ACT
    pause_warning_s: float = 3600.0
    writer: str = "guard"
    release_exposed: bool = False


@dataclass
class Guard:
    """One guard. ``new_cycle`` returns a name that no other pause has. ``status``: after the last round.

    ``growth_bytes_s``: how fast logs of paused topics grow, by topic, as far as it is known.
    """

    cluster: GuardedCluster
    channel: Channel
    leadership: Leadership | None
    clock: Clock
    options: Options
    report: Callable[[GuardEvent], None]
    new_cycle: Callable[[], str]
    growth_bytes_s: Callable[[], Mapping[str, float]] = dict
    status: GuardStatus = field(default_factory=GuardStatus)
    _verified: set[str] = field(default_factory=set)
    _reported: dict[str, str] = field(default_factory=dict)
    _begun: bool = False
    _led: bool | None = None
    _wrote: bool = False

    def __post_init__(self) -> None:
        """Begin with nothing seen."""
        self.status = GuardStatus(self.options.mode, self.options.interval_s)
        self._coverage = TopicCoverage(self.cluster, self.clock, self.options.patterns, self.options.interval_s)
        self._windows = Windows()

    def leads(self) -> bool:
        """Whether this guard may change anything now."""
        return self.leadership is not None and self.leadership.leads()

    def attempt(self) -> bool:
        """Do one round; return whether everything in it succeeded. A failure is reported once, and is in the status."""
        began_s = self.clock.now_s()
        try:
            self.round()
        except (HarnessError, OSError) as error:
            self._fail(str(error))
            return False
        finally:
            took_s = self.clock.now_s() - began_s
            self.status = replace(self.status, took_s=took_s, rounds=self.status.rounds + 1)
        return self.status.failure is None

    def round(self) -> None:
        """Do one round. Raises `HarnessError` or OSError where the cluster does not answer."""
        view = self.cluster.view()
        state, view = self._state(view)
        now_ms = self.clock.time_ms()
        coverage = self._coverage.of(view)
        leads = self.leads()
        self._note_leadership(leads=leads)
        exposed = frozenset() if self.options.release_exposed else view.exposed
        to_pause = decide.topics_to_pause(exposed, coverage.topics, state)
        self._report_exposure(view, to_pause)
        refused: Mapping[str, str] = {}
        self._wrote = False
        if leads or self.options.mode == DRY_RUN:
            refused = self._work(view, state, to_pause, coverage.settings, act=leads)
            state = self.channel.read() if self._wrote else state
        if leads and not state.pauses:
            self._trim()
        # Only reported, and the controller may not answer: no pause waits for it.
        view = self.cluster.with_added(view)
        self._finish(view, state, to_pause, leads=leads, now_ms=now_ms, refused=refused)

    @property
    def pause_s(self) -> float:
        """Seconds from the beginning of a round to that of the next one."""
        return min(self.options.interval_s, ALARMED_S) if self.cluster.is_alarmed else self.options.interval_s

    def end(self) -> int:
        """Put back what may be put back, and return the number of topics that stay paused; 0 where another one acts."""
        if not self.status.leads:
            return 0
        with suppress(WaitTimeoutError):
            self.clock.wait_until(self.attempt, END_S, "the last round")
        return self.paused

    @property
    def paused(self) -> int:
        """How many topics are paused, as far as this guard acts and knows."""
        return len(self.status.state.pauses) if self.status.leads else 0

    def _state(self, view: ClusterView) -> tuple[PauseState, ClusterView]:
        """Return what the channel has. Who only looks may go on without it; the view then says so."""
        try:
            return self.channel.read(), view
        except HarnessError as error:
            if self.options.mode == ACT:
                raise
            return self.status.state, replace(view, notes=(*view.notes, f"what is paused is unknown: {error}"))

    def _trim(self) -> None:
        """Delete entries of earlier outages. An outage is no time for it: its own entries are needed."""
        try:
            self.channel.trim()
        except HarnessError as error:
            self._once("trim", GuardEventKind.WARNING, "", str(error))

    def _note_leadership(self, *, leads: bool) -> None:
        """Report who acts; settings of paused topics are looked at again by a new leader."""
        if self.options.mode != ACT or leads is self._led:
            return
        self._led = leads
        self.status = replace(self.status, leads=leads)
        self._verified.clear()
        what = "this guard acts" if leads else "it does not act: another guard does, or the group is not complete yet"
        self._tell(GuardEventKind.LEADS if leads else GuardEventKind.STANDS_BY, "", what)

    def _work(
        self,
        view: ClusterView,
        state: PauseState,
        to_pause: frozenset[str],
        covered: Mapping[str, Settings],
        *,
        act: bool,
    ) -> Mapping[str, str]:
        """Pause and release, or say what would be done; return why topics could not be changed."""
        due = decide.topics_to_read(to_pause, state, self._verified)
        known_before = {
            topic: covered[topic]
            for topic in due
            if topic in covered and topic not in state.pauses and not _has_pause_value(covered[topic])
        }
        read = self.cluster.settings(due - known_before.keys())
        gone = [state.pauses[topic] for topic in sorted(read.gone & state.pauses.keys())]
        # A topic that this user may no longer describe is not in the view: whether it is exposed is unknown.
        known = {t: s for t, s in ({**known_before, **read.settings}).items() if t in view.topics or t in to_pause}
        unseen = dict.fromkeys(read.settings.keys() - known.keys(), "this user may not describe it: it stays paused")
        steps = decide.steps(to_pause, state, known, self.new_cycle(), self.clock.time_ms())
        if not act:
            for step in steps:
                self._once(f"would {step.topic}", GuardEventKind.WOULD, step.topic, _would(step))
            return {}
        self._keep([replace(pause, phase=PausePhase.RELEASED) for pause in gone])
        refused = self._carry_out(steps, state)
        settled = {topic for topic in known if topic in to_pause and topic not in refused}
        self._verified = (self._verified & state.pauses.keys() | settled) & to_pause
        return {**read.refused, **unseen, **refused}

    def _carry_out(self, steps: Collection[PauseStep], state: PauseState) -> dict[str, str]:
        """Do the steps; return why topics were left for the next round."""
        refused = carry_out(steps, self.cluster, self._keep, self._raise_if_replaced)
        changed = [step for step in steps if refused.get(step.topic) == CHANGED]
        self._coverage.forget({step.topic for step in changed})
        # Nothing was changed by a pause that begins here, and what it announced is not what the topic has now.
        self._keep(
            [replace(step.done, phase=PausePhase.RELEASED) for step in changed if step.topic not in state.pauses]
        )
        for step in steps:
            if step.topic not in refused:
                self._tell_step(step, state)
        return refused

    def _raise_if_replaced(self) -> None:
        if not self.leads():
            raise HarnessError("another guard took the lead before anything was changed")

    def _keep(self, pauses: Collection[Pause]) -> None:
        self._wrote = self._wrote or bool(pauses)
        keep_in(self.channel, pauses, self.clock.time_ms(), self.options.writer)

    def _tell_step(self, step: PauseStep, state: PauseState) -> None:
        """Report what was done. A pause that another guard completed is not reported again, one that it began is."""
        before = state.pauses.get(step.topic)
        changes = ", ".join(f"{name}={'(inherited)' if v is None else v}" for name, v in step.changes.items())
        if step.done.phase is PausePhase.RELEASED:
            took_s = (self.clock.time_ms() - step.done.since_ms) / MS
            self._tell(GuardEventKind.RELEASED, step.topic, f"{changes or 'nothing to put back'}, after {took_s:.1f} s")
        elif before is None or before.phase is not PausePhase.PAUSED or step.changes:
            self._tell(GuardEventKind.PAUSED, step.topic, changes or "it has the settings of a pause already")
        if step.left_alone:
            names = " and ".join(step.left_alone)
            self._tell(GuardEventKind.LEFT_ALONE, step.topic, f"somebody changed {names} during the pause")

    def _report_exposure(self, view: ClusterView, to_pause: frozenset[str]) -> None:
        for topic in sorted(to_pause & view.exposed - self.status.away.keys() - self.status.adding.keys()):
            brokers = sorted({broker for (name, _), broker in view.missing if name == topic})
            self._tell(GuardEventKind.EXPOSED, topic, f"broker {', '.join(map(str, brokers))} is not in every ISR")

    def _finish(
        self,
        view: ClusterView,
        state: PauseState,
        to_pause: frozenset[str],
        *,
        leads: bool,
        now_ms: int,
        refused: Mapping[str, str],
    ) -> None:
        """Set the status, and report warnings."""
        coverage = self._coverage.of(view)
        self._windows.see(view.missing, now_ms)
        paused = {topic for topic, pause in state.pauses.items() if pause.phase is PausePhase.PAUSED}
        left = {t: _left_alone(p) for t, p in state.pauses.items() if p.phase is PausePhase.PAUSED and _left_alone(p)}
        if refused:
            names = listed(sorted(refused))
            self._fail(f"{names}: {refused[min(refused)]}")
        elif self.status.failure is not None:
            self._tell(GuardEventKind.RECOVERED, "", "the last round succeeded")
        self.status = replace(
            self.status,
            leads=leads,
            round_ms=self.clock.time_ms(),
            failure=self.status.failure if refused else None,
            requests=self.cluster.requests,
            covered=coverage.topics,
            away=_count(view.missing - view.adding, coverage.topics | to_pause),
            adding=_count(view.adding, coverage.topics | to_pause),
            retention_left_s=self._windows.left_s(coverage.settings, now_ms),
            state=state,
            unpaused=frozenset(to_pause - paused),
            left_alone=left,
            skipped={**coverage.skipped, **refused},
            short_retention=coverage.short_retention,
            notes=view.notes,
        )
        self._warn(coverage.short_retention, now_ms)
        for topic, why in coverage.skipped.items():
            self._once(f"skipped {topic}", GuardEventKind.WARNING, topic, f"not covered: {why}")
        for note in view.notes:
            self._once(note, GuardEventKind.WARNING, "", note)
        if not self._begun and (leads or self.options.mode != ACT):
            self._begun = True
            self._tell(GuardEventKind.READY, "", f"{len(coverage.topics)} topics, every {self.options.interval_s:g} s")

    def _warn(self, short_retention: Collection[str], now_ms: int) -> None:
        for topic in sorted(short_retention):
            intervals = f"3 intervals of {self.options.interval_s:g} s and 4 s"
            what = f"its retention is shorter than {intervals}: the guard may be late"
            self._once(f"short {topic}", GuardEventKind.WARNING, topic, what)
        long = {t: p for t, p in self.status.state.pauses.items() if self._is_long(p, now_ms)}
        for topic, pause in long.items():
            grown = self.growth_bytes_s().get(topic)
            by = "" if grown is None else f" by {grown:,.0f} bytes/s, all replicas together"
            what = f"paused for longer than {self.options.pause_warning_s:g} s; its log grows{by}"
            if f"long {pause.cycle} {topic}" not in self._reported:
                self._once(f"long {pause.cycle} {topic}", GuardEventKind.WARNING, topic, what)

    def _is_long(self, pause: Pause, now_ms: int) -> bool:
        return now_ms - pause.since_ms > self.options.pause_warning_s * MS

    def _fail(self, why: str) -> None:
        if why != self.status.failure:
            self._tell(GuardEventKind.FAILED, "", f"{why}; it is tried again in the next round")
        self.status = replace(self.status, failure=why, failures=self.status.failures + 1)

    def _once(self, key: str, kind: GuardEventKind, topic: str, what: str) -> None:
        """Report something unless the last report of this key said the same."""
        if self._reported.get(key) != what:
            self._reported[key] = what
            self._tell(kind, topic, what)

    def _tell(self, kind: GuardEventKind, topic: str, what: str) -> None:
        self.report(GuardEvent(self.clock.time_ms(), kind, topic, what))


def releasing_command(bootstrap: str) -> str:
    """Return the command that puts back what is still paused."""
    return f"harness guard release --bootstrap-server {bootstrap}"


def _has_pause_value(settings: Settings) -> bool:
    """Whether a topic had the value of a pause, which may be of a pause that has ended since."""
    return any(is_pause(name, settings[name]) for name in PAUSE)


def _left_alone(pause: Pause) -> tuple[str, ...]:
    return tuple(sorted(set(PAUSE) - pause.found.keys()))


def _count(replicas: Collection[tuple[tuple[str, int], int]], topics: Collection[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for (topic, _), _ in replicas:
        if topic in topics:
            counts[topic] = counts.get(topic, 0) + 1
    return counts


def _would(step: PauseStep) -> str:
    verb = "release" if step.done.phase is PausePhase.RELEASED else "pause"
    changes = ", ".join(f"{n}={'(inherited)' if v is None else v}" for n, v in step.changes.items())
    return f"would {verb} it: {changes or 'no change'}"
