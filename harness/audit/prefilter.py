"""Which replicas are suspicious, in seconds and without reading data: open transactions against each other.

A transaction that one replica holds open and another one does not, although its last stable offset has passed it, was
decided: its marker is below that one's high watermark. A replica that knows as high a watermark has appended that
marker too, if the marker was still there to be copied. A follower may lag behind legally: so it is looked at again
until it knows that watermark, and one that does not come so far within the bound is named, not suspected.

A transaction that nobody has decided is hanging where its coordinator has finished it or does not know of it. While it
is being ended (Prepare…) it is neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from harness.audit.coordinators import FINISHED, ONGOING, Word, Words, ask_coordinators
from harness.audit.line import quick_line
from harness.audit.looks import Look, Looks, look_at
from harness.brokers.copies.notes import listed
from harness.errors import WaitTimeoutError
from harness.escape import escape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from harness.audit.cluster import Cluster
    from harness.audit.line import Line
    from harness.brokers.protocol.replica import OpenTransaction, TopicPartition
    from harness.brokers.protocol.wire import Address
    from harness.host.clock import Clock

BOUND_S = 10.0
"""For a follower to catch up; `replica.lag.time.max.ms` is 30 s, yet one in sync is rarely a second behind."""

NO_PRODUCER = -1
STUCK_LSO, HANGING_TRANSACTION = "stuck-lso", "hanging-transaction"

Replica: TypeAlias = "tuple[int, TopicPartition]"


@dataclass(frozen=True)
class Suspicion:
    """What an audit should read first, and why.

    ``transaction``: as the replica holds it open; None where its broker tells no open transactions.
    ``decided_on``: replicas that are past it. ``coordinator``: None where none knows of it.
    """

    anomaly: str
    broker: int
    topic: str
    partition: int
    offset: int
    transaction: OpenTransaction | None
    decided_on: tuple[int, ...]
    coordinator: Word | None
    explanation: str


@dataclass(frozen=True)
class Prefiltered:
    """The last look at every replica, what is suspicious, and what could not be told, each in a sentence.

    ``behind``: suspicions of replicas that did not catch up in time, so that nothing can be told; among ``notes``, too.
    """

    looks: Looks
    words: Words
    suspicions: tuple[Suspicion, ...]
    notes: tuple[str, ...]
    behind: tuple[str, ...] = ()


@dataclass(frozen=True)
class Doubt:
    """A suspicion that holds once the replica knows this high watermark and is still where it was."""

    suspicion: Suspicion
    high_watermark: int


Doubts: TypeAlias = "dict[tuple[Replica, int, int], Doubt]"
"""By replica, producer id (-1 where it is not known) and offset."""


def prefilter(
    cluster: Cluster, clock: Clock, *, bound_s: float = BOUND_S, dial: Callable[[Address, Clock], Line] = quick_line
) -> Prefiltered:
    """Look at all replicas, ask the coordinators, and look again until every doubt is settled or the bound is over.

    Raises `UsageError` where this user may not read a topic.
    """
    before = look_at(cluster, clock, dial)
    words = ask_coordinators(cluster, {held.producer_id for _, held in _all_open(before)}, clock, dial)
    latest = look_at(cluster, clock, dial)
    doubts = {**among_replicas(latest, words), **by_coordinators(cluster, before, latest, words)}
    doubts |= by_last_stable_offsets(latest)
    held: list[Doubt] = []

    def settle() -> bool:
        nonlocal latest
        for key, doubt in list(doubts.items()):
            told = holds(doubt, latest.replicas.get(key[0]))
            if told is not None:
                del doubts[key]
                held.extend([doubt] if told else [])
        if doubts:
            latest = look_at(cluster, clock, dial)
        return not doubts

    try:
        clock.wait_until(settle, bound_s, "replicas to catch up")
    except WaitTimeoutError:
        for key, doubt in list(doubts.items()):
            if doubt.suspicion.transaction is None and _knows(latest.replicas.get(key[0]), doubt):
                held.append(doubts.pop(key))
    suspicions = sorted((doubt.suspicion for doubt in held), key=lambda s: (s.topic, s.partition, s.offset, s.broker))
    behind = tuple(f"{doubt.suspicion.explanation}; yet it is too far behind to tell" for doubt in doubts.values())
    return Prefiltered(latest, words, tuple(suspicions), (*_untold(latest), *words.untold, *behind), behind)


def among_replicas(looks: Looks, words: Words) -> Doubts:
    """Return a doubt for each replica that holds a transaction open that another one is past."""
    doubts: Doubts = {}
    for replica, held in _all_open(looks):
        broker, (topic, partition) = replica
        others = looks.of((topic, partition)).items()
        past = {b: one.high_watermark for b, one in others if _is_past(one, held)}
        if past:
            word = words.told.get(held.producer_id)
            explanation = (
                f"broker {broker} holds the transaction of producer {held.producer_id} open from offset"
                f" {held.first_offset} of {topic}-{partition}, and {_brokers(past)} decided it{_said(word)}"
            )
            suspicion = Suspicion(
                STUCK_LSO, broker, topic, partition, held.first_offset, held, tuple(past), word, explanation
            )
            doubts[replica, held.producer_id, held.first_offset] = Doubt(suspicion, min(past.values()))
    return doubts


def by_coordinators(cluster: Cluster, before: Looks, looks: Looks, words: Words) -> Doubts:
    """Return a doubt for each transaction that nobody is past, while its coordinator has finished or forgotten it.

    Only for what was open ``before`` the coordinators were asked. A coordinator finishes a transaction once its markers
    are below the leader's high watermark.
    """
    doubts: Doubts = {}
    earlier = {(replica, held.producer_id, held.first_offset) for replica, held in _all_open(before)}
    for replica, held in _all_open(looks):
        broker, tp = replica
        if (replica, held.producer_id, held.first_offset) not in earlier:
            continue
        leader = cluster.partitions[tp].leader
        replicas = looks.of(tp)
        reason = _why_over(words, tp, held)
        if reason is None or leader not in replicas or any(_is_past(one, held) for one in replicas.values()):
            continue
        on_leader = _holds_open(replicas[leader], held)
        explanation = (
            f"broker {broker} holds the transaction of producer {held.producer_id} open from offset"
            f" {held.first_offset} of {tp[0]}-{tp[1]}{', as its leader does' if on_leader else ''}, and {reason}"
        )
        anomaly, word = HANGING_TRANSACTION if on_leader else STUCK_LSO, words.told.get(held.producer_id)
        suspicion = Suspicion(anomaly, broker, *tp, held.first_offset, held, (), word, explanation)
        doubts[replica, held.producer_id, held.first_offset] = Doubt(suspicion, replicas[leader].high_watermark)
    return doubts


def by_last_stable_offsets(looks: Looks) -> Doubts:
    """Return a doubt for each replica that tells no open transactions and whose last stable offset is behind another's.

    It is behind for a moment on every follower: only what stays so is suspicious.
    """
    doubts: Doubts = {}
    for (broker, tp), one in looks.replicas.items():
        ahead = {
            b: other.high_watermark
            for b, other in looks.of(tp).items()
            if other.log_start <= one.last_stable_offset < other.last_stable_offset
        }
        if one.open is None and ahead:
            explanation = (
                f"broker {broker} tells no open transactions, and its last stable offset of {tp[0]}-{tp[1]} stays at"
                f" {one.last_stable_offset}, which {_brokers(ahead)} passed"
            )
            suspicion = Suspicion(STUCK_LSO, broker, *tp, one.last_stable_offset, None, tuple(ahead), None, explanation)
            doubts[(broker, tp), NO_PRODUCER, one.last_stable_offset] = Doubt(suspicion, min(ahead.values()))
    return doubts


def holds(doubt: Doubt, latest: Look | None) -> bool | None:
    """Whether a doubt is true by the latest look at its replica; None while that cannot be said."""
    held = doubt.suspicion.transaction
    if latest is None:
        return None
    if held is None:
        return False if latest.last_stable_offset > doubt.suspicion.offset else None
    if not _holds_open(latest, held):
        return False
    return True if _knows(latest, doubt) else None


def _knows(latest: Look | None, doubt: Doubt) -> bool:
    return latest is not None and latest.high_watermark >= doubt.high_watermark


def _is_past(look: Look, held: OpenTransaction) -> bool:
    """Whether this replica had the transaction's first offset, and nothing there is undecided on it."""
    within = look.log_start <= held.first_offset < look.last_stable_offset
    return within and look.open is not None and not _holds_open(look, held)


def _holds_open(look: Look, held: OpenTransaction) -> bool:
    same = (held.producer_id, held.first_offset)
    return any((one.producer_id, one.first_offset) == same for one in look.open or ())


def _why_over(words: Words, partition: TopicPartition, held: OpenTransaction) -> str | None:
    """Return how the coordinators know the transaction to be over; None where it may be going on."""
    word = words.told.get(held.producer_id)
    if word is None:
        return None if words.untold else "no coordinator knows that producer, of what this user may describe"
    who = f"the coordinator of {escape(word.transactional_id)} (broker {word.coordinator})"
    if word.state in FINISHED:
        return f"{who} says {word.state}"
    if word.state != ONGOING:
        return None
    if word.producer_epoch > held.producer_epoch:
        return f"{who} is at epoch {word.producer_epoch} already, not {held.producer_epoch}"
    return None if partition in word.partitions else f"{who} has a transaction without that partition"


def _all_open(looks: Looks) -> Iterator[tuple[Replica, OpenTransaction]]:
    for replica, look in looks.replicas.items():
        for held in look.open or ():
            yield replica, held


def _untold(looks: Looks) -> Iterator[str]:
    """Say what was not seen."""
    yield from (f"broker {broker} does not answer: {why}" for broker, why in sorted(looks.silent.items()))
    unseen: dict[tuple[int, str], list[str]] = {}
    for (broker, (topic, partition)), why in sorted(looks.unseen.items()):
        unseen.setdefault((broker, why), []).append(f"{topic}-{partition}")
    yield from (f"broker {broker} does not tell of {listed(names)}: {why}" for (broker, why), names in unseen.items())
    quiet = sorted({broker for (broker, _), look in looks.replicas.items() if look.open is None})
    if quiet:
        yield (
            f"{_brokers(quiet)} told no open transactions of some replicas (on Redpanda only leaders do): what is stuck"
            " there shows by its last stable offset alone, or by reading"
        )


def _brokers(numbers: Iterable[int]) -> str:
    listed = [str(number) for number in numbers]
    return f"broker{'s' if len(listed) > 1 else ''} {', '.join(listed)}"


def _said(word: Word | None) -> str:
    return "" if word is None else f"; the coordinator of {escape(word.transactional_id)} says {word.state}"
