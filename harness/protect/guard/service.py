"""The guard's rounds: view the cluster, decide, store the previous settings, change settings, store the new phase.

    view ─▶ channel to its end ─▶ settings, where a step is due ─▶ store ─▶ settings again ─▶ change ─▶ store

Settings of a thousand topics take seconds to read. So a pause is decided from the last settings of covered topics, and
they are read once, just before the change. A topic whose settings differ then from those of the decision waits for the
next round. A change that somebody makes between this reading and the guard's request, some milliseconds later, is
overwritten; its value is lost. A round that fails is repeated: the only state is in the channel, and of reports.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import uuid4

from harness.broker_files.copies.selection import listed
from harness.errors import HarnessError, WaitTimeoutError
from harness.host.clock import Clock
from harness.protect.guard import decide
from harness.protect.guard.channel import GROUP, GroupLeadership, KafkaChannel
from harness.protect.guard.cluster import (
    PAUSE,
    REFRESH_S,
    ClusterView,
    CoveredTopics,
    LiveCluster,
    Replica,
    TopicCoverage,
    changes_text,
    is_pause,
    window_ms,
)
from harness.protect.guard.decide import PauseStep
from harness.protect.guard.journal import PausePhase, PauseState, entry_of
from harness.run_folder.guard_events import GuardEventKind

ALARMED_S: Final = 0.5
"""The longest interval while a broker has just stopped answering."""
END_S: Final = 10.0
"""For the last round, also while brokers are down."""
MS: Final = 1000


@dataclass(frozen=True)
class GuardOptions:
    """``patterns``: topics, () for every compacted topic. ``release_exposed``: as `harness guard release --exposed`."""

    patterns: tuple[str, ...] = ()
    interval_s: float = 2.0
    pause_warning_s: float = 3600.0
    release_exposed: bool = False


@dataclass(frozen=True)
class GuardEvent:
    """One event, as in ``guard.jsonl`` (`harness.run_folder.guard_events`)."""

    time_ms: int
    event: GuardEventKind
    topic: str
    what: str


@dataclass(frozen=True)
class GuardStatus:
    """The status after a round. ``round_ms``: the end of the last round that succeeded; 0 before.

    ``away``, ``adding``: replicas by topic; ``retention_left_s``: of exposed topics, until the first tombstone or
    marker that a replica may miss could be removed if compaction were not paused, negative after that. ``unpaused``:
    topics that have to be paused and are not. ``left_alone``: settings by topic that somebody changed during the pause.
    ``skipped``: topics that should be covered and are not, with the reason. ``short_retention``: covered topics whose
    retention is shorter than three intervals.
    """

    interval_s: float = 0.0
    leads: bool = False
    round_ms: int = 0
    rounds: int = 0
    failures: int = 0
    failure: str | None = None
    took_s: float = 0.0
    requests: int = 0
    covered: frozenset[str] = frozenset()
    away: Mapping[str, int] = field(default_factory=dict)
    adding: Mapping[str, int] = field(default_factory=dict)
    retention_left_s: Mapping[str, float] = field(default_factory=dict)
    state: PauseState = field(default_factory=PauseState)
    unpaused: frozenset[str] = frozenset()
    left_alone: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)
    short_retention: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


@dataclass
class _Round:
    """The observations and decisions of one round."""

    view: ClusterView
    state: PauseState
    covered: CoveredTopics
    to_pause: frozenset[str]
    leads: bool
    now_ms: int


@dataclass
class Guard:
    """One guard. ``status``: after the last round. Without ``leadership``, changes are reported only (a dry run).

    ``growth_bytes_s``: the growth of paused topics' logs, where it is known.
    """

    cluster: LiveCluster
    channel: KafkaChannel
    leadership: GroupLeadership | None
    clock: Clock
    options: GuardOptions
    report: Callable[[GuardEvent], None]
    growth_bytes_s: Callable[[], Mapping[str, float]] = dict
    status: GuardStatus = field(init=False)
    _verified_s: dict[str, float] = field(default_factory=dict)
    _reported: dict[str, str] = field(default_factory=dict)
    _missing_since_ms: dict[Replica, int] = field(default_factory=dict)
    _begun: bool = False
    _led: bool | None = None

    def __post_init__(self) -> None:
        self.status = GuardStatus(self.options.interval_s)
        self._coverage = TopicCoverage(self.cluster, self.clock, self.options.patterns, self.options.interval_s)

    def leads(self) -> bool:
        """Return whether this guard may change settings now."""
        return self.leadership is not None and self.leadership.leads()

    def attempt(self) -> bool:
        """Execute one round; return whether everything in it succeeded. A failure is reported once."""
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
        """Execute one round. Raises `HarnessError` or OSError where the cluster does not answer."""
        view = self.cluster.view()
        notes: tuple[str, ...] = ()
        try:
            state = self.channel.read()
        except HarnessError as error:
            if self.leadership is not None:
                raise
            state, notes = self.status.state, (f"paused topics are unknown: {error}",)
        now_ms = self.clock.time_ms()
        covered = self._coverage.covered(view)
        leads = self.leads()
        self._report_leadership(leads=leads)
        if self.leadership is not None and not leads and self.leadership.error is not None:
            notes = (f"the last error of group {GROUP}: {self.leadership.error}",)
        exposed = frozenset() if self.options.release_exposed else view.exposed
        to_pause = decide.topics_to_pause(exposed, covered.settings.keys(), state)
        this = _Round(view, state, covered, to_pause, leads, now_ms)
        for topic in sorted(to_pause & view.exposed - self.status.away.keys() - self.status.adding.keys()):
            brokers = sorted({broker for (name, _), broker in view.missing if name == topic})
            self._report(GuardEventKind.EXPOSED, topic, f"broker {', '.join(map(str, brokers))} is not in every ISR")
        refused: Mapping[str, str] = {}
        if leads or self.leadership is None:
            refused = self._pause_and_release(this)
        if leads and not this.state.pauses:
            # Entries of an outage are deleted when it is over: during the outage they are needed.
            try:
                self.channel.trim()
            except HarnessError as error:
                self._report_change("trim", GuardEventKind.WARNING, "", str(error))
        # Only reported, and the controller may not answer: no pause waits for it.
        view = self.cluster.with_added(view)
        this.view = replace(view, notes=(*view.notes, *notes))
        self._finish(this, refused)

    @property
    def pause_s(self) -> float:
        """Seconds from the beginning of a round to the beginning of the next round."""
        return min(self.options.interval_s, ALARMED_S) if self.cluster.is_alarmed else self.options.interval_s

    def end(self) -> int:
        """Release what may be released, and return the number of topics that stay paused; 0 if another guard acts."""
        if self.status.leads:
            with suppress(WaitTimeoutError):
                self.clock.wait_until(self.attempt, END_S, "the last round")
        return self.paused

    @property
    def paused(self) -> int:
        """The number of paused topics after the last round; 0 if another guard acts."""
        return len(self.status.state.pauses) if self.status.leads else 0

    def _report_leadership(self, *, leads: bool) -> None:
        """Report a change of the lead; a new leader reads the settings of paused topics again."""
        if self.leadership is None or leads is self._led:
            return
        self._led = leads
        self.status = replace(self.status, leads=leads)
        self._verified_s.clear()
        text = "this guard acts" if leads else "another guard acts, or the group is not complete yet"
        self._report(GuardEventKind.LEADS if leads else GuardEventKind.STANDS_BY, "", text)

    def _pause_and_release(self, this: _Round) -> Mapping[str, str]:
        """Pause and release, or report the steps only; return topics that could not be changed, with the reason."""
        view, state, to_pause, covered = this.view, this.state, this.to_pause, this.covered.settings
        now_s = self.clock.now_s()
        # Somebody may change a setting during the pause. Brokers may not know a pause yet that has just begun.
        verified = {topic: at_s for topic, at_s in self._verified_s.items() if now_s - at_s < REFRESH_S}
        due = decide.topics_to_read(to_pause, state, verified)
        # A topic that had the value of a pause may be paused, by a pause that has ended since.
        known = {topic: covered[topic] for topic in due & covered.keys() - state.pauses.keys()}
        cached = {t: values for t, values in known.items() if not any(is_pause(name, values[name]) for name in PAUSE)}
        read = self.cluster.settings(due - cached.keys())
        # A topic that this user may no longer describe is not in the view: its exposure is unknown.
        settings = {t: s for t, s in ({**cached, **read.settings}).items() if t in view.topics or t in to_pause}
        hidden = dict.fromkeys(read.settings.keys() - settings.keys(), "this user may not describe it: it stays paused")
        steps = decide.steps(to_pause, state, settings, uuid4().hex[:12], self.clock.time_ms())
        if not this.leads:
            for step in steps:
                verb = "release" if step.done.phase is PausePhase.RELEASED else "pause"
                would = f"would {verb} it: {changes_text(step.changes) or 'no change'}"
                self._report_change(f"would {step.topic}", GuardEventKind.WOULD, step.topic, would)
            return {}
        deleted = read.gone & state.pauses.keys() - view.topics
        gone = [replace(state.pauses[topic], phase=PausePhase.RELEASED) for topic in sorted(deleted)]
        self.channel.append(list(map(entry_of, gone)))
        refused = self._carry_out(steps, state)
        settled = dict.fromkeys(settings.keys() - refused.keys(), now_s)
        self._verified_s = {topic: at_s for topic, at_s in (verified | settled).items() if topic in to_pause}
        if steps or gone:
            this.state = self.channel.read()
        return {**read.refused, **hidden, **refused}

    def _carry_out(self, steps: Collection[PauseStep], state: PauseState) -> dict[str, str]:
        refused = decide.carry_out(steps, self.cluster, self.channel, self._raise_if_replaced)
        changed = [step for step in steps if refused.get(step.topic) == decide.CHANGED]
        self._coverage.forget({step.topic for step in changed})
        # A pause that would begin here changed nothing, and its announced settings are not the topic's settings now.
        # But another command that holds the topic may have paused it: this guard completes that pause later.
        others = state.pauses.keys() | (self.channel.read().holds.keys() if changed else ())
        unbegun = [step.done for step in changed if step.topic not in others]
        self.channel.append([entry_of(replace(pause, phase=PausePhase.RELEASED)) for pause in unbegun])
        for step in steps:
            if step.topic not in refused:
                self._report_step(step, state)
        return refused

    def _raise_if_replaced(self) -> None:
        if not self.leads():
            raise HarnessError("another guard took the lead before any setting was changed")

    def _report_step(self, step: PauseStep, state: PauseState) -> None:
        """Report a step. A pause that another guard completed is not reported again, an incomplete pause is."""
        before = state.pauses.get(step.topic)
        changes = changes_text(step.changes)
        if step.done.phase is PausePhase.RELEASED:
            took_s = (self.clock.time_ms() - step.done.since_ms) / MS
            text = f"{changes or 'no setting to restore'}, after {took_s:.1f} s"
            self._report(GuardEventKind.RELEASED, step.topic, text)
        elif before is None or before.phase is not PausePhase.PAUSED or step.changes:
            self._report(GuardEventKind.PAUSED, step.topic, changes or "it has the settings of a pause already")
        if step.left_alone:
            names = " and ".join(step.left_alone)
            self._report(GuardEventKind.LEFT_ALONE, step.topic, f"somebody changed {names} during the pause")

    def _finish(self, this: _Round, refused: Mapping[str, str]) -> None:
        view, state, to_pause, covered, now_ms = this.view, this.state, this.to_pause, this.covered, this.now_ms
        self._missing_since_ms = {replica: self._missing_since_ms.get(replica, now_ms) for replica in view.missing}
        # Each topic with its earliest time, which comes last.
        missing_since = sorted(((ms, topic) for ((topic, _), _), ms in self._missing_since_ms.items()), reverse=True)
        ends_ms = {t: ms + window_ms(covered.settings[t]) for ms, t in missing_since if t in covered.settings}
        complete = {topic: pause for topic, pause in state.pauses.items() if pause.phase is PausePhase.PAUSED}
        left_alone = {topic: tuple(sorted(PAUSE.keys() - pause.previous.keys())) for topic, pause in complete.items()}
        if refused:
            self._fail(f"{listed(sorted(refused))}: {refused[min(refused)]}")
        elif self.status.failure is not None:
            self._report(GuardEventKind.RECOVERED, "", "the last round succeeded")
        topics = frozenset(covered.settings)
        self.status = replace(
            self.status,
            leads=this.leads,
            round_ms=self.clock.time_ms(),
            failure=self.status.failure if refused else None,
            requests=self.cluster.requests,
            covered=topics,
            away=Counter(topic for (topic, _), _ in view.missing - view.adding if topic in topics | to_pause),
            adding=Counter(topic for (topic, _), _ in view.adding if topic in topics | to_pause),
            retention_left_s={topic: (end_ms - now_ms) / MS for topic, end_ms in ends_ms.items()},
            state=state,
            unpaused=to_pause - complete.keys(),
            left_alone={topic: names for topic, names in left_alone.items() if names},
            skipped={**covered.skipped, **refused},
            short_retention=covered.short_retention,
            notes=view.notes,
        )
        self._warn(covered, view.notes, now_ms)
        if not self._begun and (this.leads or self.leadership is None):
            self._begun = True
            self._report(GuardEventKind.READY, "", f"{len(topics)} topics, every {self.options.interval_s:g} s")

    def _warn(self, covered: CoveredTopics, notes: Collection[str], now_ms: int) -> None:
        intervals = f"3 intervals of {self.options.interval_s:g} s and 4 s"
        late = f"its retention is shorter than {intervals}: the guard may be late"
        warnings = {f"short {topic}": (topic, late) for topic in sorted(covered.short_retention)}
        for topic, pause in self.status.state.pauses.items():
            key = f"long {pause.cycle} {topic}"
            if now_ms - pause.since_ms > self.options.pause_warning_s * MS and key not in self._reported:
                growth = self.growth_bytes_s().get(topic)
                by = "" if growth is None else f" by {growth:,.0f} bytes/s, all replicas together"
                warnings[key] = topic, f"paused for longer than {self.options.pause_warning_s:g} s; its log grows{by}"
        warnings |= {f"skipped {topic}": (topic, f"not covered: {why}") for topic, why in covered.skipped.items()}
        warnings |= {note: ("", note) for note in notes}
        for key, (topic, text) in warnings.items():
            self._report_change(key, GuardEventKind.WARNING, topic, text)

    def _fail(self, why: str) -> None:
        if why != self.status.failure:
            self._report(GuardEventKind.FAILED, "", f"{why}; it is tried again in the next round")
        self.status = replace(self.status, failure=why, failures=self.status.failures + 1)

    def _report_change(self, key: str, kind: GuardEventKind, topic: str, text: str) -> None:
        """Report a text unless the last report of this key had the same text."""
        if self._reported.get(key) != text:
            self._reported[key] = text
            self._report(kind, topic, text)

    def _report(self, kind: GuardEventKind, topic: str, text: str) -> None:
        self.report(GuardEvent(self.clock.time_ms(), kind, topic, text))
