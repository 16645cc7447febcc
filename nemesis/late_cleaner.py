"""A cleaner that is late: it has a long ``log.cleaner.backoff.ms`` between two looks for work."""

from typing import Final

from nemesis.fault import Fault

BACKOFF_MS: Final = 15_000

FAULT = Fault(
    name="late-cleaner",
    summary="the broker's cleaner looks for work seldom",
    inject=lambda context: context.cluster.control.rest(context.brokers, BACKOFF_MS),
    heal=lambda context: context.cluster.control.wake(context.brokers),
    needs_broker_up=True,
)
