"""The anomalies by name, and every scenario that looks for one, in one table."""

from __future__ import annotations

from enum import StrEnum

from harness.errors import UsageError
from harness.plan.scenario import Action, Critical, Scenario, Step
from harness.suggest import nearest

ALL = "all"


class Anomaly(StrEnum):
    """The four ways in which replicas of a compacted partition come to disagree for ever."""

    TOMBSTONE_DIVERGENCE = "tombstone-divergence"
    ABORTED_TO_COMMITTED = "aborted-to-committed"
    COMMITTED_TO_ABORTED = "committed-to-aborted"
    STUCK_LSO = "stuck-lso"


def put(process: str, key: str, value: str) -> Step:
    """Write a value."""
    return Step(process, Action.PUT, key, value)


def delete(process: str, key: str) -> Step:
    """Write a tombstone."""
    return Step(process, Action.DELETE, key)


def begin(process: str) -> Step:
    """Begin a transaction."""
    return Step(process, Action.BEGIN)


def commit(process: str) -> Step:
    """Commit it."""
    return Step(process, Action.COMMIT)


def abort(process: str) -> Step:
    """Abort it."""
    return Step(process, Action.ABORT)


SCENARIOS = (
    Scenario(
        name="tombstone-divergence",
        anomaly=Anomaly.TOMBSTONE_DIVERGENCE,
        payload="delete",
        summary="A key is deleted while a replica is away; it never sees the tombstone and keeps the value.",
        before=(put("plain", "K", "value-before-delete"),),
        outage=(delete("plain", "K"),),
        critical=(Critical.TOMBSTONE,),
    ),
    Scenario(
        name="aborted-to-committed",
        anomaly=Anomaly.ABORTED_TO_COMMITTED,
        payload="value",
        summary="A transaction is aborted while a replica is away; the next COMMIT there covers its data too.",
        before=(begin("tx"), put("tx", "poison", "SHOULD_NOT_SEE_THIS")),
        outage=(abort("tx"),),
        late=(begin("tx"), put("tx", "good", "data"), commit("tx")),
    ),
    Scenario(
        name="aborted-to-committed-delete",
        anomaly=Anomaly.ABORTED_TO_COMMITTED,
        payload="delete",
        summary="A delete is aborted while a replica is away; the next COMMIT there deletes what should have stayed.",
        before=(put("plain", "K", "never-deleted"), begin("tx"), delete("tx", "K")),
        outage=(abort("tx"),),
        late=(begin("tx"), put("tx", "good", "data"), commit("tx")),
    ),
    Scenario(
        name="committed-to-aborted-value",
        anomaly=Anomaly.COMMITTED_TO_ABORTED,
        payload="value",
        summary="A transaction is committed while a replica is away; the next ABORT there hides its data too.",
        before=(begin("tx"), put("tx", "K", "committed-value")),
        outage=(commit("tx"), put("plain", "K", "newer-value")),
        late=(begin("tx"), put("tx", "garbage", "to-be-aborted"), abort("tx")),
    ),
    Scenario(
        name="committed-to-aborted-delete",
        anomaly=Anomaly.COMMITTED_TO_ABORTED,
        payload="delete",
        summary="A delete is committed while a replica is away; the next ABORT there undoes the delete.",
        before=(put("plain", "K", "v0-deleted-later"), begin("tx"), delete("tx", "K")),
        outage=(commit("tx"),),
        late=(begin("tx"), put("tx", "garbage", "to-be-aborted"), abort("tx")),
    ),
    Scenario(
        name="stuck-lso",
        anomaly=Anomaly.STUCK_LSO,
        payload="value",
        summary="A transaction is committed while a replica is away; it stays open there and freezes read_committed.",
        before=(begin("tx"), put("tx", "K", "V")),
        outage=(commit("tx"), put("plain", "K", "newer-value")),
    ),
)

CONTROL = Scenario(
    name="control",
    anomaly=None,
    payload="control",
    summary="The same settings without a replica on the absent broker: shows that cleaning goes on at all.",
    before=(put("plain", "D", "value-before-delete"), begin("tx"), put("tx", "K", "V")),
    outage=(delete("plain", "D"), commit("tx"), put("plain", "K", "newer-value")),
    critical=(Critical.TOMBSTONE, Critical.MARKER),
)


BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
"""Those that look for an anomaly."""


def scenarios_for(anomaly: str) -> tuple[Scenario, ...]:
    """Return the scenarios of one anomaly, of several (with commas between), or of ``all``.

    Raises `UsageError` with the nearest names.
    """
    known = [*Anomaly, ALL]
    names = anomaly.split(",")
    for name in names:
        if name not in known:
            raise UsageError(nearest("anomaly", name, known))
    return tuple(s for s in SCENARIOS if ALL in names or s.anomaly in names)
