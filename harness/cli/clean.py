"""``harness clean``: remove what ended runs left on this machine."""

from __future__ import annotations

import cloup

from harness.cli.options.common import (
    command,
    verbosity_options,
)
from harness.cli.options.parameters import Text
from harness.errors import EXIT_CLEAN, HarnessError, UsageError
from harness.host import leftovers
from harness.terminal import stdout


@command("harness clean", "harness clean 2026-11-21T20-29-10Z-0c7f")
@cloup.argument("run_ids", nargs=-1, type=Text(), metavar="[RUN_ID]...")
@verbosity_options
def clean(run_ids: tuple[str, ...]) -> int:
    """Remove what ended runs left on this machine; a named run also when it was kept.

    Runs whose owner lives are spared.
    """
    found = leftovers.find_leftovers()
    unknown = set(run_ids) - {leftover.run_id for leftover in found}
    if unknown:
        raise UsageError(f"there is no such RUN_ID: nothing is left of {', '.join(sorted(unknown))}")
    for leftover in found:
        if spared := _why_spared(leftover, run_ids):
            stdout().line(f"spared {leftover.run_id}: {spared}")
    doomed = [one for one in found if one.run_id in run_ids or (not run_ids and leftovers.is_abandoned(one))]
    removed, failed = _remove(doomed)
    removed += [f"the network of {run_id}" for run_id in leftovers.remove_orphaned_networks()]
    removed += [f"the containers of {run_id}" for run_id in leftovers.remove_orphaned_containers()]
    for what in removed:
        stdout().line(f"removed {what}")
    if failed:
        raise HarnessError("; ".join(failed))
    if not removed:
        stdout().line("nothing to remove")
    return EXIT_CLEAN


def _remove(doomed: list[leftovers.Leftover]) -> tuple[list[str], list[str]]:
    """Return what was removed, and why something was not."""
    removed, failed = [], []
    for leftover in doomed:
        try:
            ended = leftovers.remove(leftover.run_id, leftover.directory)
        except HarnessError as error:
            failed.append(str(error))
        else:
            removed.append(f"{leftover.run_id}: {ended} processes and {leftover.directory}")
    return removed, failed


def _why_spared(leftover: leftovers.Leftover, run_ids: tuple[str, ...]) -> str | None:
    """Return why a run is left alone, None where there is nothing to say of that.

    Raises `UsageError` for a named one that is still going on.
    """
    owner = leftover.owner
    named = leftover.run_id in run_ids
    if owner is None:
        return None
    if not owner.kept and owner.lives():
        if named:
            raise UsageError(f"{leftover.run_id} is still in progress (process {owner.pid}); end that first")
        return f"its run is going on (process {owner.pid})"
    if run_ids or not (owner.kept or owner.resumable):
        return None
    why = "kept" if owner.kept else f"it can go on with `harness run --resume {owner.run_dir}`"
    return f"{why}; remove it with `harness clean {leftover.run_id}`"
