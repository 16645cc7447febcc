"""Actions that run concurrently on a cluster. A wait on the cluster raises the error that ends one of them."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Final

from harness.cluster.cluster import Cluster
from harness.errors import HarnessError

PERIOD_S: Final = 0.02
"""The pause before each repetition."""


@contextmanager
def repeated(cluster: Cluster, actions: Mapping[str, Callable[[], None]]) -> Iterator[Cluster]:
    """Repeat actions concurrently throughout the block, by name; give the cluster, whose waits raise their errors."""
    routines = [cluster.clock.every(PERIOD_S, action, name) for name, action in actions.items()]
    try:
        yield replace(cluster, checks=[*cluster.checks, *(routine.raise_if_failed for routine in routines)])
    except BaseException:
        for routine in routines:
            # One that hangs as well is a consequence, and must not hide what went wrong.
            with suppress(HarnessError):
                routine.stop()
        raise
    for routine in routines:
        routine.stop()


def at_once(cluster: Cluster, actions: Mapping[str, Callable[[], None]], bound_s: float) -> None:
    """Execute all actions concurrently, each once, by name.

    Raises the first `HarnessError` of an action as it is, any other error as a `HarnessError`, and `WaitTimeoutError`
    after ``bound_s`` seconds.
    """
    remaining, errors = dict(actions), list[HarnessError]()

    def once(name: str) -> None:
        if name in remaining:
            try:
                actions[name]()
            except HarnessError as error:
                errors.append(error)
            del remaining[name]

    def all_ended() -> bool:
        if errors:
            raise errors[0]
        return not remaining

    with repeated(cluster, {name: partial(once, name) for name in actions}) as checked:
        checked.wait(all_ended, f"{', '.join(actions)} to end", bound_s)
