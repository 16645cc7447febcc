"""The options of commands that work on a cluster of the user's own, and the addresses that they name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cloup

from harness.cli.options.parameters import Text, file_to_read

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from harness.cli.options.common import Callback
    from harness.kafka_api.address import Address

CLUSTER = cloup.OptionGroup("Cluster")


def _servers(text: str) -> None:
    from harness.kafka_api.address import parse_bootstrap  # noqa: PLC0415  (slow imports, only where needed)

    parse_bootstrap(text)


def bootstrap_option(*, required: bool = True) -> Callable[[Callback], Callback]:
    """Return ``--bootstrap-server``. A group of commands requires it by itself, as its subcommands have their own."""
    return cloup.option(
        "--bootstrap-server",
        "bootstrap",
        group=CLUSTER,
        required=required,
        type=Text(_servers),
        metavar="HOST:PORT,…",
        help="One broker or several to begin with." + ("" if required else "  [required]"),
    )


config_option = cloup.option(
    "--command-config",
    "config",
    group=CLUSTER,
    type=file_to_read(),
    metavar="FILE",
    help="A Java client's properties for SASL and TLS.",
)


def addresses(bootstrap: str, config: Path | None) -> list[Address]:
    """Return the bootstrap addresses, with the login of a properties file. Raises `UsageError` for either."""
    from harness.kafka_api.address import parse_bootstrap  # noqa: PLC0415
    from harness.kafka_api.security import read_security  # noqa: PLC0415

    return parse_bootstrap(bootstrap, read_security(config) if config else None)
