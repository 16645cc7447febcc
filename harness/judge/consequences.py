"""Consequences for an application, in words of the person who runs it, by ``applications.jsonl``.

`harness.play.applications` has the schema of the lines. Each view that an application has of a topic is compared with
the same view while a replica that stayed in sync led the topic: the application should always show this view.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from harness.judge.finding import Finding

AppliedLine: TypeAlias = "Mapping[str, Any]"
"""A line of ``applications.jsonl``."""

STAYING, ABSENT, AGAIN = "staying-leads", "absent-leads", "staying-leads-again"
"""The steps of `harness.play.applications`."""
SHOWN: Final = 3
"""So many entries that differ are named; of more, the number is given."""
LONGEST: Final = 60
TITLES: Final = {
    ("streams", "table"): "Kafka Streams {version}: a table restored from {topic}",
    ("streams", "global-table"): "Kafka Streams {version}: a global table of {topic}",
    ("connect", "connectors"): "Kafka Connect {version}: a worker with the config topic {topic}",
    ("connect", "offsets"): "Kafka Connect {version}: a source connector with the offset topic {topic}",
}
"""By application and view."""


PHRASES: Final = {
    "connectors": (
        "has the connector {key} ({is_there})",
        "lacks the connector {key}",
        "has the connector {key} {is_there} and not {should_be}",
    ),
    "offsets": (
        "goes on in {key} at {is_there} and not at its beginning",
        "goes on in {key} at its beginning and not at {should_be}",
        "goes on in {key} at {is_there} and not at {should_be}",
    ),
}
"""By view, how an entry differs: one that should not be there, one that is missing, one with another value."""
ENTRIES: Final = ("has {key} = {is_there}", "lacks {key} = {should_be}", "has {key} = {is_there} and not {should_be}")
"""Of every other view."""


@dataclass(frozen=True)
class WrongEntry:
    """An entry of a view that differs from the one that it should be; None for a missing entry."""

    key: str
    should_be: str | None
    is_there: str | None

    def text(self, view: str) -> str:
        """Return the difference in words."""
        extra, missing, changed = PHRASES.get(view, ENTRIES)
        phrase = missing if self.is_there is None else extra if self.should_be is None else changed
        return phrase.format(key=self.key, should_be=_short(self.should_be), is_there=_short(self.is_there))


@dataclass(frozen=True, kw_only=True)
class ApplicationView:
    """A view that an application has of a topic while a broker leads that was absent, compared with the right view.

    ``lasts``: whether something still differed when a replica that stayed in sync led again; None where nothing
    differed, or where this was not observed.
    """

    application: str
    version: str
    topic: str
    view: str
    broker: int
    differs: bool
    lasts: bool | None
    summary: str


def consequences(lines: Sequence[AppliedLine]) -> tuple[ApplicationView, ...]:
    """Return one entry for each view of a topic and absent broker."""
    steps: dict[tuple[str, str, str, int | None], AppliedLine] = {
        (line["step"], line["topic"], line["view"], line["absent"]): line for line in lines
    }
    views = []
    for (step, topic, view, broker), line in steps.items():
        should_be = steps.get((STAYING, topic, view, None))
        if step != ABSENT or should_be is None or broker is None:
            continue
        again = steps.get((AGAIN, topic, view, broker))
        differs, lasts, text = _compared(should_be, line, again)
        title = TITLES[line["application"], view].format_map(line)
        views.append(
            ApplicationView(
                application=line["application"],
                version=line["version"],
                topic=topic,
                view=view,
                broker=broker,
                differs=differs,
                lasts=lasts,
                summary=f"{title} {text}",
            )
        )
    return tuple(views)


def with_consequences(findings: Iterable[Finding], views: Iterable[ApplicationView]) -> tuple[Finding, ...]:
    """Return the findings, each with the differing views of its topic and broker as ``consequence``."""
    differing = [view for view in views if view.differs]

    def added(finding: Finding) -> Finding:
        replica = (finding.topic, finding.broker)
        summaries = [view.summary for view in differing if (view.topic, view.broker) == replica]
        earlier = [finding.consequence] if finding.consequence else []
        return replace(finding, consequence="; ".join([*earlier, *summaries])) if summaries else finding

    return tuple(map(added, findings))


def _compared(should_be: AppliedLine, line: AppliedLine, again: AppliedLine | None) -> tuple[bool, bool | None, str]:
    """Return whether a view differs from what it should be, whether that lasts, and both in words."""
    if should_be["entries"] is None:
        return False, None, f"could not be compared: it was {should_be['state']} while broker {should_be['leader']} led"
    wrong = _wrong(should_be, line)
    if not wrong:
        return False, None, f"shows the same {len(line['entries'])} entries, whichever broker leads"
    text = f"{wrong} while broker {line['leader']} leads, and not while broker {should_be['leader']} leads"
    if again is None:
        return True, None, text
    still, leads = _wrong(should_be, again), f"when broker {again['leader']} leads again"
    if not still:
        return True, False, f"{text}; it recovers {leads}"
    if still == wrong:
        return True, True, f"{text}; its local state keeps that {leads}"
    return True, True, f"{text}; with that local state it {still} {leads}"


def _wrong(should_be: AppliedLine, line: AppliedLine) -> str:
    """Return what is wrong with a view, "" where nothing is."""
    if line["running_s"] is None and should_be["running_s"] is not None:
        return f"stays {line['state']} (watched for {line['watched_s']:.0f} s)"
    if line["entries"] is None:
        return f"cannot be queried ({line['error']})"
    differences = _differences(should_be["entries"], line["entries"])
    if len(differences) > SHOWN:
        right = len(should_be["entries"]) - sum(one.should_be is not None for one in differences)
        return f"is {line['state']} without an error, and has {right} of {len(should_be['entries'])} entries"
    return " and ".join(one.text(line["view"]) for one in differences)


def _differences(should_be: Mapping[str, str], is_there: Mapping[str, str]) -> list[WrongEntry]:
    keys = sorted({*should_be, *is_there})
    every = (WrongEntry(key, should_be.get(key), is_there.get(key)) for key in keys)
    return [one for one in every if one.should_be != one.is_there]


def _short(value: str | None) -> str:
    text = str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
