"""Outages, and whether each exposes the broker that was down. No replica is wrong in any of them."""

import literal
from literal import (
    History,
    absent,
    appeared,
    by_filler,
    commit,
    delete,
    emptied,
    emptied_marker,
    put,
    removed,
    replica,
    together,
)

from checker_cases.case import both
from checker_cases.transactions import END, T1, T2, U1, V1, X1

TOMBSTONE, MARKER = "tombstone", "marker"
HORIZON_MS = 5_000
D1, C3 = delete(3, "D"), commit(4, T1)
WROTE = (put(0, "D"), put(1, "K", T1), put(2, "x"))
OUTAGE = (D1, C3, put(5, "K"), put(6, "x"))
LEFT = (put(5, "K"), put(6, "x"))
YOUNG = (put(5, "K", at_ms=HORIZON_MS), put(6, "x"))
STAMPED = (delete(3, "D", horizon_ms=HORIZON_MS), commit(4, T1, horizon_ms=HORIZON_MS))

U2 = literal.Txn(7, "u/2")
EXPOSURES = [
    History("exposed by a kill", wrote=WROTE, outage=OUTAGE,
        before=(replica(1, *LEFT), replica(3, *LEFT), absent(2, *WROTE)),
        after=(replica(1, *LEFT), replica(3, *LEFT), replica(2, *WROTE, *LEFT)),
        seen=(
            *(appeared(broker, entry, at_ms=100 + broker) for broker in (1, 3) for entry in (D1, C3)),
            *(removed(broker, entry, at_ms=200 + broker) for broker in (1, 3) for entry in (D1, C3)),
        ),
    ),
    History(
        # The key of an offset that expires: the offset is committed again, so that it can expire.
        "its key was written again during the outage",
        wrote=(put(0, "D"), put(1, "D"), by_filler(put(2, "D"))),
        outage=(put(3, "D"), by_filler(put(4, "D")), delete(5, "D"), END),
        before=(replica(1, END), absent(2, put(0, "D"), put(1, "D"), put(2, "D"))),
        after=both(END),
    ),
    History("removed everywhere without a fault", wrote=WROTE, outage=OUTAGE,
        before=(*both(*LEFT), replica(3, *LEFT)),
        after=(*both(*LEFT), replica(3, *LEFT)),
        seen=tuple(
            line
            for broker in (1, 2, 3)
            # No snapshot holds the transaction's record: only the observer can tell whose marker it is.
            for entry in (put(1, "K", T1), D1, C3)
            for line in (appeared(broker, entry, at_ms=100 + broker), removed(broker, entry, at_ms=200 + broker))
        ),
    ),
    History("kept during the outage", wrote=WROTE, outage=OUTAGE,
        before=(
            # Passed by the cleaner: a batch below its checkpoint is younger than the horizon.
            replica(1, *STAMPED, *YOUNG, cleaned_to=6),
            # Stamped, but every batch below its checkpoint is older than the horizon.
            replica(3, *STAMPED, *YOUNG, cleaned_to=5),
            absent(2, *WROTE),
        ),
        # Served records do not count where the broker's files can be read.
        after=(
            replica(1, *YOUNG, served=(*STAMPED, *YOUNG)), replica(3, *YOUNG),
            replica(2, *YOUNG, directory="another disk"),
        ),
        seen=(
            # A value that was truncated, where the tombstone came to lie.
            removed(3, put(3, "D"), at_ms=800),
            *(removed(broker, entry, at_ms=900 + broker) for broker in (1, 2, 3) for entry in (D1, C3)),
        ),
    ),
    History("kept together and removed together", wrote=WROTE, outage=OUTAGE,
        before=(
            replica(1, *WROTE, *OUTAGE, redpanda=True, cleaned_to=5),
            replica(3, *WROTE, *OUTAGE, redpanda=True, cleaned_to=4), absent(2, *WROTE, redpanda=True),
        ),
        after=tuple(replica(broker, *YOUNG, redpanda=True) for broker in (1, 2, 3)),
        seen=tuple(removed(broker, entry, at_ms=900 + broker) for broker in (1, 2, 3) for entry in (D1, C3)),
    ),
    History("handed over in mid-copy", wrote=WROTE, outage=OUTAGE,
        before=(
            replica(1, *LEFT, led_by=(1, 4)), replica(3, *WROTE, *OUTAGE, led_by=(1, 4)),
            replica(2, *WROTE, high_watermark=3, led_by=(1, 4)),
        ),
        after=(
            replica(1, *LEFT, led_by=(1, 4)), replica(3, *WROTE, *OUTAGE, led_by=(1, 4)),
            replica(2, *WROTE, *LEFT, led_by=(1, 4)),
        ),
        seen=(
            *(appeared(broker, entry, at_ms=100 + broker) for broker in (1, 3) for entry in (D1, C3)),
            *(removed(1, entry, at_ms=201) for entry in (D1, C3)),
        ),
    ),
    *(
        History(f"another {change}", wrote=WROTE, outage=OUTAGE,
            before=(replica(1, *LEFT, led_by=led_before), replica(2, *WROTE, led_by=led_before)),
            after=(replica(1, *LEFT, led_by=(1, 4)), replica(2, *WROTE, *LEFT, led_by=(1, 4))),
        )
        for change, led_before in (("leader", (2, 4)), ("leader epoch", (1, 3)))
    ),
    History("only the remnant of the marker was seen on one of two", wrote=(put(0, "K", V1),),
        outage=(commit(1, V1), put(2, "K"), END), after=both(put(2, "K"), END),
        seen=(
            appeared(1, put(0, "K", V1), at_ms=1), appeared(1, commit(1, V1), at_ms=2),
            appeared(2, emptied_marker(1, V1), at_ms=3), removed(1, emptied_marker(1, V1), at_ms=4),
            removed(2, emptied_marker(1, V1), at_ms=4),
        ),
    ),
    History("the marker was never seen", wrote=(put(0, "K", T1),), outage=(commit(1, T1), put(2, "K"), END),
        after=both(put(2, "K"), END),
    ),
    History("other records were written",
        wrote=(
            put(0, "A"), put(1, "D"), put(2, "D"), by_filler(put(3, "F")), together(put(4, "K", T1), put(5, "L", T1)),
            put(6, "M", U1), commit(7, U1), put(8, "N", X1), delete(9, "A"),
        ),
        outage=(
            delete(10, "D"), by_filler(delete(11, "F")), commit(12, T1), put(13, "K", T2), put(14, "M", U2),
            commit(15, X1),
        ),
        late=(commit(16, T2), put(17, "end"), commit(18, U2)), in_doubt=(X1,),
        after=(
            replica(1, commit(12, T1), put(13, "K", T2), commit(16, T2), put(17, "end"), directory=None),
            absent(2, together(put(4, "K", T1), put(5, "L", T1)), put(13, "K", T2), put(17, "end")),
        ),
    ),
    History("emptied, and removed later", wrote=(put(0, "K", V1),), outage=(commit(1, V1), put(2, "K"), END),
        before=(
            replica(1, emptied(0, V1), put(2, "K", at_ms=HORIZON_MS), END, cleaned_to=2, directory=None),
            absent(2, put(0, "K", V1)),
        ),
        after=(replica(1, put(2, "K", at_ms=HORIZON_MS), END, cleaned_to=9), replica(2, put(0, "K", V1), END)),
        seen=(
            appeared(1, put(0, "K", V1), at_ms=1), appeared(1, commit(1, V1), at_ms=2),
            removed(1, commit(1, V1), at_ms=4), removed(1, emptied_marker(1, V1), at_ms=9),
        ),
    ),
    History("stamped, and the cleaner has not come past", wrote=(put(0, "D"), put(1, "x", at_ms=HORIZON_MS)),
        outage=(delete(3, "D"), END),
        before=(
            replica(1, put(1, "x", at_ms=HORIZON_MS), delete(3, "D", horizon_ms=HORIZON_MS), END, cleaned_to=3),
            absent(2, put(0, "D")),
        ),
        after=(
            replica(1, put(1, "x", at_ms=HORIZON_MS), delete(3, "D", horizon_ms=HORIZON_MS), END, cleaned_to=10),
            replica(2, put(0, "D"), put(1, "x", at_ms=HORIZON_MS), delete(3, "D"), END),
        ),
    ),
    History("nothing is replicated", wrote=(put(0, "K", T1),), outage=(commit(1, T1),),
        after=both(put(0, "K", T1), high_watermark=0),
    ),
]  # fmt: skip
