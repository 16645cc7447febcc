"""Headlines of findings: the sentence of each anomaly, which finding comes first, and hostile text."""

from typing import Any

import findings
import pytest

from checkers.finding import HANGING_TRANSACTION, UNEXPLAINED_DIVERGENCE
from harness.judge.finding import Finding
from harness.report.headlines import _SENTENCES, headline, worst_number
from harness.schedules.catalog import Anomaly

VISIBLE, LATENT = "visible", "latent"
STUCK = "broker 2 will never deliver t-0 past offset 5 to read_committed consumers"
ALIVE = "broker 2 still serves deleted key K of t-0: the value at offset 5"
ABORTED = "1 aborted record of t-0 as committed, from offset 5 (key K)"
HIDES = "broker 2 hides %s of t-0, from offset 5"


def finding(anomaly: str, effect: str = VISIBLE, **more: Any) -> Finding:
    return findings.finding(**{"anomaly": anomaly, "key": {"text": "K"}, "producer_id": 6, "effect": effect, **more})


SENTENCES: dict[str, Finding] = {
    f"{STUCK}; up to 51 records are invisible": finding("stuck-lso", witness={"high_watermark_here": 56}),
    STUCK: finding("stuck-lso"),
    f"{STUCK.replace('broker 2 will never', 'no broker will ever')}: a transaction is open on every replica": finding(
        "hanging-transaction"
    ),
    "broker 2 delivers 2 aborted records of t-0 as committed, from offset 5 (key K)": finding(
        "aborted-to-committed", witness={"records": 2}
    ),
    f"broker 2 holds {ABORTED}, behind its last stable offset": finding("aborted-to-committed", LATENT),
    f"{ALIVE}, deleted at offset 10": finding("tombstone-divergence", witness={"deleted_at": 10, "alive_here_at": 5}),
    f"{ALIVE}, which other replicas have removed": finding("tombstone-divergence", witness={"removed_by_broker": 1}),
    f"{HIDES % '1 committed record'}: consumers of key K get the older value at offset 4": finding(
        "committed-to-aborted", witness={"records": 1, "alive_here_at": 4}
    ),
    f"{HIDES % '2 committed records'}: consumers of a record without a key do not get its last value": finding(
        "committed-to-aborted", witness={"records": 2}, key=None
    ),
    f"{HIDES % '2 committed records'}; later records supersede them": finding(
        "committed-to-aborted", LATENT, witness={"records": 2}
    ),
    "broker 2 counts a committed transaction of t-0 as aborted, from offset 5; none of its records is left": finding(
        "committed-to-aborted", LATENT, witness={"evidence": ["span"]}
    ),
    "broker 2 does not have the last committed record of key K in t-0, at offset 7": finding(
        "unexplained-divergence", witness={"last_committed_at": 7}
    ),
    "broker 2 applies a later marker to a transaction in t-0, from offset 5": finding("unexplained-divergence", LATENT),
    "replicas of t-0 disagree about key K at offset 5, and the evidence does not show which replica is wrong": finding(
        "stuck-lso", decided=False
    ),
    "broker 2 has of-a-later-release in t-0, at offset 5": finding("of-a-later-release"),
}


@pytest.mark.parametrize("sentence", SENTENCES)
def test_the_sentence_names_broker_partition_and_consequence(sentence: str) -> None:
    assert headline(SENTENCES[sentence]) == sentence


def test_every_anomaly_has_a_sentence() -> None:
    assert set(_SENTENCES) == {*map(str, Anomaly), HANGING_TRANSACTION, UNEXPLAINED_DIVERGENCE}


@pytest.mark.parametrize(
    ("key", "text"), [({"text": "a\x1b\u202e\\b"}, r"key a\x1b\u202e\\b "), ({"base64": "/w=="}, r"key \xff ")]
)
def test_a_key_is_escaped(key: dict[str, str], text: str) -> None:
    assert text in headline(finding("tombstone-divergence", key=key))


def test_a_decoded_record_is_shown_as_such() -> None:
    record = {"topic_kind": "k", "text": "group g, data-0", "key": {"group": "g"}}
    described = finding("tombstone-divergence", key={"text": "\0\1"}, record=record)
    assert "still serves deleted group g, data-0 of t-0" in headline(described)
    undecoded = finding("tombstone-divergence", record={"topic_kind": "k", "text": "key K", "note": "unknown"})
    assert "deleted key K of t-0" in headline(undecoded)


def test_the_worst_comes_first() -> None:
    tombstone, hidden = finding("tombstone-divergence"), finding("committed-to-aborted", LATENT)
    assert worst_number([]) is None
    assert worst_number([hidden, tombstone, tombstone]) == 2
    assert worst_number([finding("of-a-later-release"), tombstone, finding("stuck-lso")]) == 3
    assert worst_number([finding("stuck-lso", LATENT), finding("of-a-later-release")]) == 2
