"""``harness clean``: remove processes, folders and containers of ended runs from this machine."""

import cloup

from harness.cli.options.common import command
from harness.cli.options.parameters import Text
from harness.errors import EXIT_CLEAN, HarnessError, UsageError
from harness.host import leftovers
from harness.terminal import stdout


@command("harness clean", "harness clean 2026-11-21T20-29-10Z-0c7f", formats=False)
@cloup.argument("run_ids", nargs=-1, type=Text(), metavar="[RUN_ID]...")
def clean(run_ids: tuple[str, ...]) -> int:
    """Remove what ended runs left on this machine.

    Runs in progress stay. Kept clusters stay too, unless their run is named.
    """
    owners = leftovers.find_leftovers()
    if unknown := set(run_ids) - {directory.name for directory in owners}:
        raise UsageError(f"there is no such RUN_ID: nothing is left of {', '.join(sorted(unknown))}")
    for directory, owner in owners.items():
        if owner and (spared := _why_spared(owner, directory.name, run_ids)):
            stdout().line(f"spared {directory.name}: {spared}")
    removed, failed = [], []
    for directory, owner in owners.items():
        if directory.name in run_ids or (not run_ids and leftovers.is_abandoned(directory, owner)):
            try:
                removed.append(f"{directory.name}: {leftovers.remove(directory)} processes and {directory}")
            except HarnessError as error:
                failed.append(str(error))
    removed += leftovers.remove_orphans()
    for text in removed:
        stdout().line(f"removed {text}")
    if failed:
        raise HarnessError("; ".join(failed))
    if not removed:
        stdout().line("nothing to remove")
    return EXIT_CLEAN


def _why_spared(owner: leftovers.Owner, run_id: str, run_ids: tuple[str, ...]) -> str | None:
    """Return the reason to spare a run; None for a run that is removed or was not named.

    Raises `UsageError` for a named run that is still in progress.
    """
    if not owner.kept and owner.lives():
        if run_id in run_ids:
            raise UsageError(f"{run_id} is still in progress (process {owner.pid}); end that first")
        return f"its run is in progress (process {owner.pid})"
    if run_ids or not (owner.kept or owner.resumable):
        return None
    why = "kept" if owner.kept else f"resume it with `harness run --resume {owner.run_dir}`"
    return f"{why}; remove it with `harness clean {run_id}`"
