"""``harness images``: container images for ``--runtime docker``."""

import cloup

from harness.cli.options.common import command
from harness.cli.options.parameters import TARGET
from harness.console import ConsoleProgress
from harness.errors import EXIT_CLEAN
from harness.terminal import stdout


@cloup.group()
def images() -> None:
    """Build container images for --runtime docker."""


@command("harness images build kafka-3.9", "harness images build kafka-4.4.0", of=images, formats=False)
@cloup.argument("target_name", type=TARGET, metavar="TARGET")
def build(target_name: str) -> int:
    """Build an image like apache/kafka from the brokers' jars and this host's Java. Pulls nothing."""
    from harness.host import engine  # noqa: PLC0415
    from harness.host.java import find_java  # noqa: PLC0415
    from harness.targets import find_target  # noqa: PLC0415
    from harness.targets.images import build_image  # noqa: PLC0415
    from harness.targets.jars import jars_for  # noqa: PLC0415

    target, java, client = find_target(target_name), find_java(), engine.connect()
    progress = ConsoleProgress()
    jars = jars_for(target, on_progress=progress.jars, verify=True)
    progress.stage(f"build {target.name} ({target.version})")
    image = build_image(client, target, jars, java)
    stdout().line(f"{image.reference}  {image.id}")
    return EXIT_CLEAN
