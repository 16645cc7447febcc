"""Write the pinned files of targets in a source tree: ``python bench/pin.py kafka-3.9``.

They are the lock of the brokers' jars (`harness.targets.lock`), the locks of applications for the target
(`harness.targets.jars`), and ``locks/kafka-3.9.2.settings``, with a line ``scope<TAB>name<TAB>type<TAB>valid
values`` for each setting of the exact version: scope is ``topic`` or ``broker``, the type is a `ConfigDef.Type`, and
the valid values are the text of its `ConfigDef.Validator`, if any. A name that ends with ``*`` is a prefix of names.

Sources: `LogConfig` and `KafkaConfig` (from 4.0 on `AbstractKafkaConfig`); for settings of plugins without a definition
`StandardAuthorizer`, `JmxReporter`, `RemoteLogManagerConfig`, `AbstractConfig` and `ListenerName`.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaGateway, get_field

from harness.errors import UsageError
from harness.host.java import find_java
from harness.targets import Target, find_target
from harness.targets.jars import RELEASES, jars_for
from harness.targets.lock import lock_name, lock_text, resolve, resolve_modules
from harness.terminal import stderr

_LOCKS = Path(__file__).resolve().parents[1] / "harness" / "targets" / "locks"
_UNNAMED = "$$Lambda"
"""Part of the default text of a validator."""


def read_from_jars(target: Target) -> list[str]:
    """Return the lines of a target's list, in order of scope and name. Raises `UsageError` as `jars_for` does."""
    gateway = JavaGateway.launch_gateway(
        classpath=jars_for(target).classpath, java_path=str(find_java().path), die_on_exit=True, enable_auth=True
    )
    try:
        jvm = gateway.jvm
        return sorted({*_defined(jvm, "topic"), *_defined(jvm, "broker"), *_undefined(jvm)})
    finally:
        gateway.close()
        gateway.java_process.kill()
        gateway.java_process.wait()


def _defined(jvm: Any, scope: str) -> Iterator[str]:
    kafka = jvm.org.apache.kafka
    try:
        jvm.java.lang.Class.forName("org.apache.kafka.server.config.AbstractKafkaConfig")
        of_broker = kafka.server.config.AbstractKafkaConfig.CONFIG_DEF
    except Exception:  # noqa: BLE001  (py4j wraps ClassNotFoundException: 3.9 has the definition elsewhere)
        of_broker = jvm.kafka.server.KafkaConfig.configDef()
    definition = kafka.storage.internals.log.LogConfig.configDefCopy() if scope == "topic" else of_broker
    for key in definition.configKeys().values():
        validator = get_field(key, "validator")
        valid = "" if validator is None else str(validator.toString()).strip()
        words = (scope, get_field(key, "name"), get_field(key, "type").name(), "" if _UNNAMED in valid else valid)
        yield "\t".join(words)


def _undefined(jvm: Any) -> Iterator[str]:
    """Yield the settings without a definition that brokers read, or pass to plugins."""
    kafka = jvm.org.apache.kafka
    authorizer = kafka.metadata.authorizer.StandardAuthorizer
    remote = kafka.server.log.remote.storage.RemoteLogManagerConfig
    yield f"broker\t{authorizer.SUPER_USERS_CONFIG}\tSTRING\t"
    yield f"broker\t{authorizer.ALLOW_EVERYONE_IF_NO_ACL_IS_FOUND_CONFIG}\tBOOLEAN\t"
    for prefix in (
        str(kafka.common.network.ListenerName("x").configPrefix()).removesuffix("x."),
        f"{kafka.common.config.AbstractConfig.CONFIG_PROVIDERS_CONFIG}.",
        kafka.common.metrics.JmxReporter.METRICS_CONFIG_PREFIX,
        remote.DEFAULT_REMOTE_STORAGE_MANAGER_CONFIG_PREFIX,
        remote.DEFAULT_REMOTE_LOG_METADATA_MANAGER_CONFIG_PREFIX,
    ):
        yield f"broker\t{prefix}*\tSTRING\t"


def _pin(target: Target) -> None:
    on_line = stderr().line
    with tempfile.TemporaryDirectory() as staging:
        (_LOCKS / lock_name(target)).write_text(lock_text(resolve(target, Path(staging), on_line)), encoding="utf-8")
    lines = read_from_jars(target)
    (_LOCKS / f"kafka-{target.version}.settings").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    for release in RELEASES.values():
        version = release.version_for(target)
        modules = [f"{module}:{version}" for module in release.modules]
        with tempfile.TemporaryDirectory() as staging:
            lock = lock_text(resolve_modules(modules, Path(staging), on_line))
        (_LOCKS / f"{release.name}-{version}.lock").write_text(lock, encoding="utf-8")


def main(names: list[str]) -> int:
    """Write the files of each named target; return the exit code."""
    try:
        for target in map(find_target, names):
            _pin(target)
    except UsageError as error:
        stderr().message(f"error: {error}")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
