"""Consequences for applications and groups, in words of the person who runs them.

By ``applications.jsonl`` (`harness.play.applications` has the schema): each view that an application has of a topic is
compared with the same view while a replica that stayed in sync led the topic. The application should always show that
view. By the operations ``fetch offsets`` and ``consume`` of the history (`workloads.group_consumers`): the answers that
a group gets from a coordinator that was absent are compared with the answers of a broker that never was. Nothing is
concluded from logs: a sentence says what a coordinator answered, or which records a consumer received.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from harness.broker_files.internal_topics.phrases import offsets_text
from harness.judge.finding import Finding, Place, brokers_text, finding_about
from harness.kafka_api import NO_COORDINATOR_YET, UNSTABLE_OFFSET
from harness.run_folder.history import CONSUME, FETCH_OFFSETS
from harness.schedules.scenario import INPUT_PARTITIONS

Line: TypeAlias = Mapping[str, Any]
"""A line of ``applications.jsonl``, or a completed operation about a group."""
GroupConsequences: TypeAlias = dict[tuple[Place, int], list[str]]
"""Sentences by partition of ``__consumer_offsets`` and broker."""

ENOUGH_S: Final = 20.0
"""A group that waits longer for a record is stuck, also on a slow machine."""
STUCK_GROUP: Final = "stuck-group"
_INPUTS: Final = frozenset(map(str, range(INPUT_PARTITIONS)))

STAYING, ABSENT, AGAIN = "staying-leads", "absent-leads", "staying-leads-again"
"""The steps of `harness.play.applications`."""
SHOWN: Final = 3
"""The limit of differing entries that are named; of more entries, only the number is given."""
LONGEST: Final = 60
TITLES: Final = {
    ("streams", "table"): "Kafka Streams {version}: a table restored from {topic}",
    ("streams", "global-table"): "Kafka Streams {version}: a global table of {topic}",
    ("connect", "connectors"): "Kafka Connect {version}: a worker with the config topic {topic}",
    ("connect", "offsets"): "Kafka Connect {version}: a source connector with the offset topic {topic}",
}
"""Titles by application and view."""
TITLE: Final = "{application} {version}: {view} of {topic}"
"""The title of every other view."""
PHRASES: Final = {
    "connectors": (
        "has the connector {key} ({actual})",
        "does not have the connector {key}",
        "has the connector {key} {actual} and not {expected}",
    ),
    "offsets": (
        "continues in {key} at {actual} and not at its beginning",
        "continues in {key} at its beginning and not at {expected}",
        "continues in {key} at {actual} and not at {expected}",
    ),
}
"""Phrases by view, for an extra entry, a missing entry and an entry with another value."""
ENTRIES: Final = ("has {key} = {actual}", "does not have {key} = {expected}", "has {key} = {actual} and not {expected}")
"""The phrases for every other view."""
_GROUP_FIELDS: Final = (f'"f": "{FETCH_OFFSETS}"', f'"f": "{CONSUME}"')


@dataclass(frozen=True, kw_only=True)
class ApplicationView:
    """An application's view of a topic while a broker leads that was absent, compared with the right view.

    ``lasts``: whether the view still differed when a replica that stayed in sync led again; None where the view did not
    differ, or where this was not observed.
    """

    application: str
    version: str
    topic: str
    view: str
    broker: int
    differs: bool
    lasts: bool | None
    summary: str


def with_consequences(
    findings: Iterable[Finding], views: Sequence[ApplicationView], groups: GroupConsequences | None = None
) -> tuple[Finding, ...]:
    """Return the findings, each with the sentences about its partition, topic and broker as ``consequence``."""

    def added(finding: Finding) -> Finding:
        texts = [finding.consequence] if finding.consequence else []
        texts += (groups or {}).get((finding.place, finding.broker), [])
        replica = (finding.topic, finding.broker)
        texts += (view.summary for view in views if view.differs and (view.topic, view.broker) == replica)
        return replace(finding, consequence="; ".join(texts)) if texts else finding

    return tuple(map(added, findings))


def application_views(lines: Sequence[Line]) -> tuple[ApplicationView, ...]:
    """Return one entry for each view of a topic and absent broker."""
    steps = {(line["step"], line["topic"], line["view"], line["absent"]): line for line in lines}
    views = []
    for (step, topic, view, broker), line in steps.items():
        expected = steps.get((STAYING, topic, view, None))
        if step != ABSENT or expected is None or broker is None:
            continue
        differs, lasts, text = _compared(expected, line, steps.get((AGAIN, topic, view, broker)))
        title = TITLES.get((line["application"], view), TITLE).format_map(line)
        facts = {name: line[name] for name in ("application", "version", "topic", "view")}
        views.append(ApplicationView(**facts, broker=broker, differs=differs, lasts=lasts, summary=f"{title} {text}"))
    return tuple(views)


def _compared(expected: Line, line: Line, again: Line | None) -> tuple[bool, bool | None, str]:
    """Return whether a view differs from the expected view, whether the difference lasts, and a sentence."""
    if expected["entries"] is None:
        return False, None, f"could not be compared: it was {expected['state']} while broker {expected['leader']} led"
    differences = _differences(expected, line)
    if not differences:
        return False, None, f"shows the same {len(line['entries'])} entries, whichever broker leads"
    text = f"{differences} while broker {line['leader']} leads, and not while broker {expected['leader']} leads"
    if again is None:
        return True, None, text
    remaining, leads = _differences(expected, again), f"when broker {again['leader']} leads again"
    if not remaining:
        return True, False, f"{text}; it recovers {leads}"
    if remaining == differences:
        return True, True, f"{text}; its local state keeps that {leads}"
    return True, True, f"{text}; with that local state it {remaining} {leads}"


def _differences(expected: Line, line: Line) -> str:
    """Return how a view differs from the expected view, "" if it does not."""
    if line["running_s"] is None and expected["running_s"] is not None:
        return f"stays {line['state']} (watched for {line['watched_s']:.0f} s)"
    if line["entries"] is None:
        return f"cannot be queried ({line['error']})"
    right, actual = expected["entries"], line["entries"]
    keys = [key for key in sorted({*right, *actual}) if right.get(key) != actual.get(key)]
    if len(keys) > SHOWN:
        same = len(right) - sum(key in right for key in keys)
        return f"is {line['state']} without an error, and has {same} of {len(right)} entries"
    extra, missing, changed = PHRASES.get(line["view"], ENTRIES)
    return " and ".join(
        (missing if key not in actual else extra if key not in right else changed).format(
            key=key, expected=_short(right.get(key)), actual=_short(actual.get(key))
        )
        for key in keys
    )


def _short(value: str | None) -> str:
    text = str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


@dataclass
class _GroupView:
    """The answers of one coordinator to a group: offsets by input partition, and by protocol the first offsets."""

    group: str = ""
    topic: str = ""
    offsets: Mapping[str, int] = field(default_factory=dict)
    answer: str | None = None
    first: dict[str, Mapping[str, int]] = field(default_factory=dict)
    within_s: float = 0.0

    @property
    def delivered(self) -> set[str]:
        """The input partitions of which a consumer of any protocol got a record."""
        return {number for first in self.first.values() for number in first}


def read_group_events(path: Path) -> list[Line]:
    """Return the completed operations about groups of a history. Its lines were checked when they were judged."""
    with path.open() as lines:
        events = [json.loads(line) for line in lines if any(text in line for text in _GROUP_FIELDS)]
    return [event for event in events if event["type"] == "ok"]


def group_consequences(events: Iterable[Line], absent: Sequence[int]) -> GroupConsequences:
    """Return sentences about each broker that was absent; none if another broker gives the same answers."""
    consequences = {}
    for place, by_broker in _group_views(events).items():
        others = [broker for broker in by_broker if broker not in absent]
        for broker in (broker for broker in by_broker if others and broker in absent):
            if sentences := _sentences(by_broker[broker], broker, by_broker[others[0]], others[0]):
                consequences[place, broker] = sentences
    return consequences


def stuck_groups(events: Iterable[Line], absent: Sequence[int]) -> Iterator[Finding]:
    """Yield ``stuck-group`` for each group that gets no record from coordinators that stayed, although others get some.

    Such a coordinator has received everything, and no transaction is open any more; so it may not answer
    UNSTABLE_OFFSET_COMMIT (KIP-447), which it answered before consumers waited for ``within_s`` seconds. And as each
    input partition has records after every offset that was committed, each delivers one.
    """
    views = _group_views(events)
    works = any(view.delivered for by_broker in views.values() for view in by_broker.values())
    for place, by_broker in views.items():
        stayed = {broker: view for broker, view in by_broker.items() if broker not in absent}
        stuck = {broker: view for broker, view in stayed.items() if view.answer == UNSTABLE_OFFSET}
        silent = _INPUTS.difference(*(view.delivered for view in stayed.values()))
        longest_s = max((view.within_s for view in stayed.values()), default=0)
        if stuck and not any(view.delivered for view in stuck.values()):
            what, why = "record", ", which answers UNSTABLE_OFFSET_COMMIT, although no transaction is open"
        elif works and silent and longest_s >= ENOUGH_S:
            stuck, what, why = stayed, f"record of partition {' and '.join(sorted(silent))} of its input", ""
        else:
            continue
        view = next(iter(stuck.values()))
        text = f"group {view.group} got no {what} within {view.within_s:g} s from {brokers_text([*stuck])}{why}"
        yield finding_about(STUCK_GROUP, place, [*stuck], {}, offset=0, effect="visible", explanation=text)


def _group_views(events: Iterable[Line]) -> Mapping[Place, Mapping[int, _GroupView]]:
    views: dict[Place, dict[int, _GroupView]] = {}
    for event in events:
        by_broker = views.setdefault((event["topic"], event["partition"]), {})
        view = by_broker.setdefault(event["broker"], _GroupView(event["group"], event["input"]))
        if event["f"] == CONSUME:
            view.first[event["protocol"]], view.within_s = event["first"], event["within_s"]
        elif event["stable"]:
            view.offsets, view.answer = event["offsets"], event.get("answer")
    return views


def _sentences(here: _GroupView, broker: int, there: _GroupView, other: int) -> list[str]:
    does = "leads the partition of" if here.answer in NO_COORDINATOR_YET else "coordinates"
    situation, elsewhere = f"while broker {broker} {does} group {here.group}", f"with broker {other}"
    protocols_of: dict[str, list[str]] = {}
    for protocol, right in there.first.items():
        for sentence in _consumed(here, here.first.get(protocol, {}), right, elsewhere):
            protocols_of.setdefault(sentence, []).append(protocol)
    return [
        *(f"{situation}, a consumer ({', '.join(names)} protocol) {text}" for text, names in protocols_of.items()),
        *(
            f"{situation}, offset {offset} of {here.topic}-{number} is committed, which {elsewhere} is deleted"
            for number, offset in here.offsets.items()
            if number not in there.offsets
        ),
    ]


def _consumed(here: _GroupView, first: Mapping[str, int], right: Mapping[str, int], elsewhere: str) -> list[str]:
    if right and not first:
        starts = ", ".join(f"{here.topic}-{number} at offset {offset}" for number, offset in right.items())
        answer = f" (the broker answers {here.answer})" if here.answer else ""
        return [f"got no record at all within {here.within_s:g} s{answer}; {elsewhere} it begins {starts}"]
    return [
        f"{'skips' if first[number] > offset else 'repeats'} {offsets_text(*sorted((first[number], offset)))} of "
        f"{here.topic}-{number}; {elsewhere} it begins at offset {offset}"
        for number, offset in right.items()
        if first.get(number, offset) != offset
    ]
