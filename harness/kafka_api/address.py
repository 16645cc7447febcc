"""Addresses of brokers, and the ``host:port[,host:port…]`` of ``--bootstrap-server``."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from typing import TYPE_CHECKING, Final

from harness.errors import UsageError
from harness.suggest import quoted

if TYPE_CHECKING:
    from harness.kafka_api.security import Security

LAST_PORT: Final = 65_535
_ADDRESS: Final = re.compile(r"(\[(?P<ipv6>[^\[\]]+)\]|(?P<host>[\w.-]{1,253})):(?P<port>[0-9]+)")
"""A host may be in any script: names are looked up by IDNA."""


@dataclass(frozen=True, order=True)
class Address:
    """The address of a broker's client listener, and its login; without ``security``, there is no login."""

    host: str
    port: int
    security: Security | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        """Return host:port as every Kafka client takes it, with an IPv6 host in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_bootstrap(text: str, security: Security | None = None) -> list[Address]:
    """Return the addresses of ``host:port[,host:port…]``; an IPv6 host is in brackets. Raises `UsageError`."""
    return [_address(part.strip(), security) for part in text.split(",")]


def _address(text: str, security: Security | None) -> Address:
    """Parse like `org.apache.kafka.common.utils.Utils.getHost` and ``getPort``, and no more leniently."""
    if "://" in text:
        raise UsageError(f"{quoted(text)} is a URL: give host:port[,host:port…], without a protocol")
    match = _ADDRESS.fullmatch(text)
    if match is None:
        remedy = "an IPv6 address in brackets: [::1]:9092" if text.count(":") > 1 else "host:port[,host:port…]"
        raise UsageError(f"{quoted(text)} is not an address: give {remedy}")
    digits = match["port"]
    if len(digits) > len(str(LAST_PORT)) or not 1 <= int(digits) <= LAST_PORT:
        raise UsageError(f"{quoted(text)}: {quoted(digits)} is not a port; give a port from 1 to {LAST_PORT}")
    host, kind = match["ipv6"] or match["host"], "an IPv6 address" if match["ipv6"] else "a host name"
    try:
        _ = IPv6Address(host) if match["ipv6"] else host.encode("idna")
    except ValueError as error:
        raise UsageError(f"{quoted(text)}: {host} is not {kind}") from error
    return Address(host, int(digits), security)
