"""Spark's JVM without ``spark-submit``: two scripts and a second JVM that only print the command line.

For a Spark that is this one JVM. What ``spark-submit`` adds is for others: clusters' own classes, jars that a user
names, ``spark-defaults.conf``, which the harness's settings replace anyway.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import IO

MAIN_CLASS = "org.apache.spark.api.python.PythonGatewayServer"
"""What ``spark-submit pyspark-shell`` runs, too. It ends with its input."""

_POLL_S = 0.02

# Flags that are the same in every session; a class archive holds for them alone.

DRIVER_MEMORY = "1g"

JVM_FLAGS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:C1MaxInlineLevel=1",
    "-XX:-UsePerfData",
    # Plans of checkers are deep: with 512 KB they end in a StackOverflowError, and 1 MB is what Java gives.
    "-Xss4m",
    # Room from the start: a heap and a metaspace that have to grow collect again and again on the way.
    "-XX:MetaspaceSize=300m",
    "-XX:+AlwaysPreTouch",
)
HEAP_FLAGS = ("-Xms512m", "-Xmn320m")
"""The same for the heap, of the size that it has unless a user gives another."""

OPENED = (
    "java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util",
    "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs",
    "sun.security.action", "sun.util.calendar",
)  # fmt: skip
"""Packages of ``java.base`` that Spark reaches into (``org.apache.spark.launcher.JavaModuleOptions``)."""

MODULE_FLAGS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)
"""Of that class, too; without its incubator module, which MLlib alone uses."""


def spark_home() -> Path:
    """Return where pyspark is installed, without importing it. Raises `HarnessError` where it is not."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise HarnessError("there is no pyspark: `harness doctor` says what to install")
    return Path(found.origin).parent


def start_jvm(
    java: Path, memory: str, flags: Sequence[str], *, directory: Path, log: IO[bytes]
) -> tuple[subprocess.Popen[bytes], Path]:
    """Start it in this directory; return its process, and the file where it will say how it is reached.

    It is in a process group of its own: Ctrl-C in a terminal does not reach it.
    """
    handshake_path = Path(tempfile.mkdtemp(dir=directory, prefix="gateway-")) / "address"
    class_path = os.fspath(spark_home() / "jars" / "*")
    process = subprocess.Popen(
        [os.fspath(java), "-cp", class_path, f"-Xmx{memory}", *flags, *MODULE_FLAGS, MAIN_CLASS],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        cwd=directory,
        env={**os.environ, "SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(handshake_path)},
        process_group=0,
    )
    return process, handshake_path


def connect(process: subprocess.Popen[bytes], handshake_path: Path) -> Any:
    """Return pyspark's gateway to it, as ``launch_gateway`` does. Raises ConnectionError where it ended before."""
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415  (the JVM starts while this is imported)
    from pyspark.serializers import UTF8Deserializer, read_int  # noqa: PLC0415

    while not handshake_path.exists():
        if process.poll() is not None:
            raise ConnectionError(f"its JVM ended by itself (exit code {process.returncode})")
        time.sleep(_POLL_S)
    with handshake_path.open("rb") as handshake:
        address = {
            "PYSPARK_GATEWAY_PORT": str(read_int(handshake)),
            "PYSPARK_GATEWAY_SECRET": UTF8Deserializer().loads(handshake),
        }
    with _environment(address):
        gateway = launch_gateway()
    gateway.proc = process
    return gateway


@contextmanager
def _environment(more: Mapping[str, str]) -> Iterator[None]:
    os.environ.update(more)
    try:
        yield
    finally:
        for name in more:
            del os.environ[name]
