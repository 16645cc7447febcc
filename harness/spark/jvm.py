"""Start Spark's JVM without ``spark-submit``, which starts two scripts and a second JVM to print the command line.

Only for a Spark that is this one JVM: ``spark-submit`` adds the classes of clusters, jars that a user names, and
``spark-defaults.conf``, which the harness's settings replace anyway.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import HarnessError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import IO

MAIN_CLASS = "org.apache.spark.api.python.PythonGatewayServer"
"""The class that ``spark-submit pyspark-shell`` runs, too. The JVM ends with its input."""
DRIVER_MEMORY = "1g"
_POLL_S = 0.02

# A class archive is valid for these flags only, which are the same in every session.

JVM_FLAGS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:C1MaxInlineLevel=1",
    "-XX:-UsePerfData",
    # Plans of checkers are deep: with 512 KB they end in a StackOverflowError, and Java's default is 1 MB.
    "-Xss4m",
    # Large from the start: a heap and a metaspace that have to grow collect garbage again and again.
    "-XX:MetaspaceSize=300m",
    "-XX:+AlwaysPreTouch",
)
HEAP_FLAGS = ("-Xms512m", "-Xmn320m")
"""The flags of the heap, unless a user sets its size."""

OPENED = (
    "java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util",
    "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs",
    "sun.security.action", "sun.util.calendar",
)  # fmt: skip
"""Packages of ``java.base`` that Spark accesses by reflection (``org.apache.spark.launcher.JavaModuleOptions``)."""

MODULE_FLAGS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)
"""The flags of that class, without its incubator module, which only MLlib uses."""


def spark_home() -> Path:
    """Return the folder of pyspark, without importing it. Raises `HarnessError` if it is not installed."""
    pyspark = find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        raise HarnessError("pyspark is not installed: `harness doctor` says what to install")
    return Path(pyspark.origin).parent


def start_jvm(
    java: Path, memory: str, flags: Sequence[str], *, directory: Path, log: IO[bytes]
) -> tuple[subprocess.Popen[bytes], Path]:
    """Start the JVM in this directory; return its process, and the file to which it will write its address.

    The process has a separate process group: Ctrl-C in a terminal does not end it.
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
    """Return pyspark's gateway to the JVM, as ``launch_gateway`` does. Raises ConnectionError if the JVM has ended."""
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
    os.environ.update(address)
    try:
        gateway = launch_gateway()
    finally:
        for name in address:
            del os.environ[name]
    gateway.proc = process
    return gateway
