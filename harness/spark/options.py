"""The options ``--spark-master`` and ``--spark-conf``: the Spark on which the checkers run.

A worker needs the same wheel of this project, with its dependencies, in a Python of the same minor version, which
``spark.pyspark.python`` names (else PYSPARK_PYTHON, else the path of the Python that runs here). Every worker needs the
folders that are checked, under the same path.
"""

import os
import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from harness.errors import UsageError, raised_as

LOCAL = "local[2]"
OWN = {
    "spark.master": "give --spark-master",
    "spark.submit.deployMode": "the driver is this process",
    "spark.sql.warehouse.dir": "no tables are stored",
    "spark.speculation": "a copy of a task would read a broker again, beyond the rate limit",
    "spark.dynamicAllocation.cachedExecutorIdleTimeout": "an idle executor keeps the data that it has read",
}
"""Settings that users cannot change, with the reason."""

OF_SUBMIT = (
    "spark.archives", "spark.driver.extra", "spark.driver.default", "spark.files", "spark.jars", "spark.kerberos",
    "spark.submit",
)  # fmt: skip
"""Prefixes of settings that ``spark-submit`` uses before the session starts: downloads, class paths, flags."""

_ONE_PROCESS = re.compile(r"local(\[(\d+|\*)(, *\d+)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[ *\d+ *, *\d+ *, *\d+ *\]")
_SECRET = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)
"""Settings that Spark redacts, too: they are kept off command lines, which everybody may read."""
MOST_OF_HOST = 1_000_000
"""The limit of threads, processes or megabytes of a Spark on this host."""
_HADOOP = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")


@dataclass(frozen=True)
class SparkOptions:
    """The master, and settings that win over the harness's settings."""

    master: str = LOCAL
    conf: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_on_this_host(self) -> bool:
        """Return whether every process of this Spark is on this host."""
        return self.master.startswith("local")

    @property
    def is_one_plain_jvm(self) -> bool:
        """Return whether this Spark is the driver's JVM alone, and can be started without ``spark-submit``."""
        return not self.has_executors and not any(name.startswith(OF_SUBMIT) for name in self.conf)

    @property
    def has_executors(self) -> bool:
        """Return whether processes other than the driver run the tasks."""
        return not _ONE_PROCESS.fullmatch(self.master)


def parse_spark(master: str, pairs: Iterable[str]) -> SparkOptions:
    """Return the parsed options.

    Raises `UsageError` for settings that are not of the form ``spark.NAME=VALUE`` or that users cannot change, for an
    unknown kind of master, and for a master that does not accept connections.
    """
    conf: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        name = name.strip()
        if not (equals and name.startswith("spark.")):
            raise UsageError(f"--spark-conf {pair}: give spark.NAME=VALUE, such as spark.executor.memory=4g")
        if name in OWN:
            raise UsageError(f"--spark-conf {pair}: the harness sets {name} itself ({OWN[name]})")
        conf[name] = value.strip()
    _raise_if_unusable(master)
    return SparkOptions(master, conf)


def public(options: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that anybody may read."""
    return {name: value for name, value in options.items() if not _SECRET.search(name)}


def raise_if_secret(options: Mapping[str, str]) -> None:
    """Raise `UsageError` for a secret that was given on the command line."""
    for name in sorted(options.keys() - public(options).keys()):
        raise UsageError(
            f"--spark-conf {name}: other users of this host can read the command line; put it into [spark] conf of"
            " harness.toml, or leave it to the credential chain (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)"
        )


def _raise_if_unusable(master: str) -> None:
    if _ONE_PROCESS.fullmatch(master) or _LOCAL_CLUSTER.fullmatch(master):
        # Ten digits show that a number is too large, however long it is.
        if any(not 1 <= int(number[:10]) <= MOST_OF_HOST for number in re.findall(r"\d+", master)):
            raise UsageError(f"--spark-master {master}: every number is from 1 to {MOST_OF_HOST:,}")
        return
    if master == "yarn":
        if not any(os.environ.get(name) for name in _HADOOP):
            raise UsageError(f"--spark-master yarn: set {' or '.join(_HADOOP)} to the folder of the cluster's settings")
        return
    with raised_as(UsageError, f"--spark-master {master}", ValueError):
        addresses = _addresses(master)
    if not addresses:
        raise UsageError(f"--spark-master {master}: give spark://HOST:PORT, yarn, k8s://URL, or local[N]")
    failures = [failure for address in addresses if (failure := _connection_failure(address))]
    if len(failures) == len(addresses):
        raise UsageError(f"--spark-master {master} cannot be reached: {'; '.join(failures)}")


def _addresses(master: str) -> list[tuple[str, int]]:
    """Return the addresses of a standalone master or of Kubernetes. Raises ``ValueError`` for an invalid port."""
    if master.startswith("spark://"):
        urls = [urlsplit(f"//{place}") for place in master.removeprefix("spark://").split(",")]
        default_port = 7077
    elif master.startswith("k8s://"):
        rest = master.removeprefix("k8s://")
        urls = [urlsplit(rest if "://" in rest else f"https://{rest}")]
        default_port = 80 if urls[0].scheme == "http" else 443
    else:
        return []
    return [(url.hostname, url.port or default_port) for url in urls if url.hostname]


def _connection_failure(address: tuple[str, int]) -> str | None:
    try:
        socket.create_connection(address, timeout=10.0).close()
    except OSError as error:
        return f"{address[0]}:{address[1]}: {error.strerror or error}"
    return None
