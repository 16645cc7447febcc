"""Does the model behave like real brokers? Schedules are played on both, with a comparison after every step.

`schedules` has the operations, `picture` plays them on the model, `brokers` on a real cluster, a `partition` each, and
`conform` compares the pictures of both. Not compared, because the schedule does not determine them: times (of horizons
only whether there is one), coordinator epochs, codecs and headers.
"""
