"""The names of what replicas are wrong about: the anomalies', by what clients know and by what logs have left of it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from harness.schedules.catalog import Anomaly
from harness.soak.evidence.client_log import ABORTED, COMMITTED
from harness.soak.judge.expectations import HANGING
from harness.soak.judge.key_truth import NO_VALUE
from harness.soak.judge.truth import HIDDEN, SERVED, STATE, STUCK

if TYPE_CHECKING:
    from harness.kafka_api.messages import TopicPartition
    from harness.soak.evidence.replica_log import Replica
    from harness.soak.judge.truth import Truth, Wrong

UNEXPLAINED: Final = "unexplained"
_NAMES: Final = {
    SERVED: str(Anomaly.ABORTED_TO_COMMITTED),
    HIDDEN: str(Anomaly.COMMITTED_TO_ABORTED),
    STUCK: str(Anomaly.STUCK_LSO),
}


def named(truth: Truth) -> dict[Replica, dict[str, list[Wrong]]]:
    """Return what each replica is wrong about by the name of the anomaly; `UNEXPLAINED` is none.

    A wrong final state has the name of what the replica misjudges of that key. Where it has cleaned that away, it tells
    whether it is what an aborted record would make of the key, or what the key would be without a committed one, where
    the same client has later ended another transaction there in the other way; and what is left of the transaction that
    should have counted. A deleted value that is still served is tombstone-divergence else, whether or not a write of
    which clients know nothing has followed the delete. A transaction that is open on every replica hangs.
    """
    stuck: dict[tuple[TopicPartition, int | None], set[int]] = defaultdict(set)
    holders: dict[TopicPartition, set[int]] = defaultdict(set)
    for (broker, tp), wrongs in truth.wrongs.items():
        holders[tp].add(broker)
        for wrong in wrongs:
            if wrong.kind == STUCK:
                stuck[tp, wrong.transaction].add(broker)
    found: dict[Replica, dict[str, list[Wrong]]] = {}
    for (broker, tp), wrongs in truth.wrongs.items():
        by_name: dict[str, list[Wrong]] = defaultdict(list)
        misjudged = {wrong.key for wrong in wrongs if wrong.kind in _NAMES}
        for wrong in wrongs:
            if wrong.kind == STATE and wrong.key in misjudged:
                continue
            hangs = wrong.kind == STUCK and stuck[tp, wrong.transaction] == holders[tp] and len(holders[tp]) > 1
            by_name[HANGING if hangs else _name(truth, (broker, tp), wrong)].append(wrong)
        if by_name:
            found[broker, tp] = dict(by_name)
    return found


def _name(truth: Truth, replica: Replica, wrong: Wrong) -> str:
    if wrong.kind in _NAMES:
        return _NAMES[wrong.kind]
    if wrong.kind != STATE:
        return UNEXPLAINED
    followed = truth.followed[replica[1]]
    if any(COMMITTED in followed.get(transaction, ()) for transaction in wrong.counts_aborted):
        return _NAMES[SERVED]
    if wrong.due and (truth.missed[replica].get(wrong.due), truth.outcomes[wrong.due]) == (ABORTED, COMMITTED):
        return _NAMES[HIDDEN]
    if wrong.truth == NO_VALUE or wrong.is_deleted:
        return str(Anomaly.TOMBSTONE_DIVERGENCE)
    is_hidden = wrong.due and wrong.leaves_out_last and ABORTED in followed.get(wrong.due, ())
    return _NAMES[HIDDEN] if is_hidden else UNEXPLAINED
