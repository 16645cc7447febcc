"""The flags of Spark's JVM that are the same in every session; a class archive holds for them alone."""

from __future__ import annotations

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
)
HEAP_FLAGS = (f"-Xms{DRIVER_MEMORY}", "-Xmn320m")
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
