"""The matching of findings: found, misnamed and false."""

from dataclasses import replace
from typing import Any

import pytest
from expected import COMMITTED_TO_ABORTED, STUCK_LSO, TOMBSTONE_DIVERGENCE, VISIBLE, Expected
from generate import case_of
from matching import Found, complaints

pytestmark = pytest.mark.commit

PLACE: dict[str, Any] = {"topic": "t", "partition": 0, "offset": 5, "key": b"k"}
WRONG = Expected(
    anomaly=TOMBSTONE_DIVERGENCE, broker=2, evidence="tombstone", required=True, offsets=frozenset({5, 9}),
    keys=frozenset({b"k"}), **PLACE,
)  # fmt: skip
UNDECIDED, TOLERATED = replace(WRONG, decided=False), replace(WRONG, required=False)
FOUND = Found(anomaly=TOMBSTONE_DIVERGENCE, candidates=frozenset(), brokers=frozenset({2}), effect=VISIBLE, **PLACE)
UNSURE = replace(FOUND, candidates=frozenset({TOMBSTONE_DIVERGENCE, COMMITTED_TO_ABORTED}))


MISSING, FALSE = "not found", "of nothing"


@pytest.mark.parametrize(("wrongs", "found", "errors"), [
    pytest.param([WRONG], [FOUND], [], id="as it is"),
    pytest.param([WRONG], [replace(FOUND, offset=9)], [], id="by its other offset"),
    pytest.param([WRONG], [replace(FOUND, key=None)], [], id="without a key"),
    pytest.param([UNDECIDED], [UNSURE], [], id="by candidates"),
    pytest.param([UNDECIDED], [FOUND], [], id="by a good guess"),
    pytest.param([replace(WRONG, effect=None)], [FOUND], [], id="of either effect"),
    pytest.param([WRONG], [replace(FOUND, brokers=frozenset({1, 2, 3}))], [], id="undecided"),
    pytest.param([WRONG], [replace(FOUND, anomaly=STUCK_LSO)], [MISSING, FALSE], id="another name"),
    pytest.param([WRONG], [replace(FOUND, brokers=frozenset({1, 3}))], [MISSING, FALSE], id="broker"),
    pytest.param([WRONG], [replace(FOUND, offset=6)], [MISSING, FALSE], id="offset"),
    pytest.param([WRONG], [replace(FOUND, key=b"l")], [MISSING, FALSE], id="key"),
    pytest.param([WRONG], [replace(FOUND, effect="latent")], [MISSING, FALSE], id="effect"),
    pytest.param([UNDECIDED], [replace(FOUND, anomaly=COMMITTED_TO_ABORTED)], [MISSING, FALSE], id="a wrong name"),
    pytest.param([WRONG], [UNSURE], [MISSING], id="undecided, and the divergence is plain"),
    pytest.param([TOLERATED], [], [], id="tolerated and not found"),
    pytest.param([TOLERATED], [UNSURE], [], id="tolerated and found"),
    pytest.param([WRONG], [], [MISSING], id="missing"),
    pytest.param([], [FOUND], [FALSE], id="false"),
])  # fmt: skip
def test_complaints(wrongs: list[Expected], found: list[Found], errors: list[str]) -> None:
    assert [line.split(":")[1].strip() for line in complaints(case_of("case", {}, wrongs, bare=False), found)] == errors
