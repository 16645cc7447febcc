"""``harness doctor``: finds missing programs and settings of this machine, and their remedies."""

from __future__ import annotations

from harness.cli.options.common import Group, command, envelope
from harness.cli.options.parameters import TARGET
from harness.console import JSON, ConsoleProgress
from harness.errors import EXIT_CLEAN, EXIT_USAGE
from harness.terminal import Table, stdout, styled

CACHE = Group("Cache")


@command("harness doctor", "harness doctor --fetch kafka-3.9 --fetch kafka-4.4")
@CACHE.option("--fetch", TARGET, "Warm the cache with this target's jars; repeatable.", name="targets", multiple=True)
def doctor(targets: tuple[str, ...], output: str) -> int:
    """Check what this machine is missing, and print the remedies."""
    from harness.doctor import diagnose  # noqa: PLC0415
    from harness.host.java import find_java  # noqa: PLC0415
    from harness.judge.sessions import CHECKS  # noqa: PLC0415
    from harness.spark import background  # noqa: PLC0415
    from harness.spark.class_archive import make_archive  # noqa: PLC0415
    from harness.targets import find_target  # noqa: PLC0415
    from harness.targets.jars import jars_for  # noqa: PLC0415

    progress = ConsoleProgress()
    for target in [find_target(name) for name in targets]:
        jars = jars_for(target, on_progress=progress.jars, verify=True)
        progress.stage(f"{target.name} ({target.version}): {len(jars.digests)} jars in {jars.directory}")
    if targets:
        archive = make_archive(find_java(), CHECKS, wait_s=background.LIMIT_S)
        progress.stage(f"Spark's classes: {archive or 'another process still makes their archive'}")
    checks = sorted(diagnose(), key=lambda check: check.ok)
    if output == JSON:
        stdout().json(envelope(checks=[vars(check) for check in checks]))
    else:
        signs = {True: styled("ok", "green"), False: styled("lacks", "red")}
        rows = [(signs[check.ok], check.name, check.found, check.remedy) for check in checks]
        stdout().table(Table(("", "what", "found", "to do"), rows))
    return EXIT_CLEAN if all(check.ok for check in checks) else EXIT_USAGE
