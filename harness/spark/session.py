"""The Spark session that checkers run in."""

import logging
import subprocess
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext, accumulators
from pyspark.errors.exceptions import captured
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter

from harness.spark.jobs import name_call_sites
from harness.spark.launch import SparkSpec, connect, launch, options_of, set_environment, write_driver_python
from harness.spark.options import public

log = logging.getLogger("harness")


for _server in (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer):
    # Not an error: a JVM that is ended on purpose breaks the connection to its accumulator server.
    setattr(_server, "handle_error", lambda *_: None)  # noqa: B010  (a method, for mypy)


NUMPY_CONVERTERS = (NumpyArrayConverter, NumpyScalarConverter)
LOOKED_UP = ("functions", "org.apache.spark.sql.functions", "PythonUtils", "PythonSQLUtils")
"""Classes that pyspark's DataFrames look up in the JVM by name, again for every column."""


def start_session(spec: SparkSpec, launched: tuple[subprocess.Popen[bytes], Path] | None = None) -> SparkSession:
    """Start the session; it writes files to ``scratch_dir``, and its output to ``log_path``.

    ``launched``: its JVM, if that was started before. Another session needs `workspace_session.forget`.
    """
    # A JVM that is ended on purpose leaves calls unanswered: not an error.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    set_environment(spec.options)
    options = options_of(spec)
    public_conf, conf = (SparkConf(loadDefaults=False) for _ in range(2))
    public_conf.setAll(list(public(options).items()))
    conf.setAll(list(options.items()))
    if started := launched or launch(spec):
        gateway = connect(*started)
    else:
        spec.scratch_dir.mkdir(parents=True, exist_ok=True)
        write_driver_python(spec)
        with spec.log_path.open("ab") as output:
            gateway = launch_gateway(public_conf, {"stdout": output, "stderr": output, "cwd": spec.scratch_dir})
    client: Any = gateway._gateway_client  # noqa: SLF001  (pyspark has no public name)
    # NumPy arguments are never passed, and the first use of their conversion imports pandas.
    client.converters = [converter for converter in client.converters if not isinstance(converter, NUMPY_CONVERTERS)]
    _convert_only_errors_of(client)
    session = session_on(SparkContext(conf=conf, gateway=gateway))
    # Otherwise py4j asks the JVM for the same names over and over, in every package of all of Spark's jars.
    for name in LOOKED_UP:
        setattr(gateway.jvm, name, _CachedClass(getattr(gateway.jvm, name)))
    gateway.gateway_property.enable_memory_management = spec.outlives_jobs
    name_call_sites(session)
    return session


def session_on(context: SparkContext) -> SparkSession:
    """Return a session without the extensions in Spark's jars, else the session of `SparkSession.builder`.

    The extensions are MLlib's functions, which no checker uses; to register them takes a second of Scala reflection.
    Both sessions give the same results. Raises an exception of pyspark for a setting that Spark rejects.
    """
    jvm: Any = context._jvm  # noqa: SLF001  (pyspark has no public name)
    try:
        none, nothing = jvm.scala.Option.empty(), jvm.scala.collection.immutable.HashMap()
        extensions = jvm.org.apache.spark.sql.SparkSessionExtensions()
        java_context = context._jsc.sc()  # noqa: SLF001
        of_jvm = jvm.org.apache.spark.sql.classic.SparkSession(java_context, none, none, extensions, nothing, nothing)
        session = SparkSession(context, of_jvm)
    except (AttributeError, TypeError, Py4JError) as error:
        log.info("PySpark's constructor of sessions has changed; Spark starts a second slower: %s", error)
        session = SparkSession.builder.getOrCreate()
    _ = session.conf  # Spark reads its settings now, and not in the first query.
    return session


def _convert_only_errors_of(spark_client: Any) -> None:
    """Keep pyspark from converting the exceptions of other JVMs, such as the Java client's.

    Pyspark replaces py4j's reading of answers for the process, and would ask Spark's JVM about the exceptions of other
    JVMs.
    """
    convert = captured.capture_sql_exception

    def convert_own(get_return_value: Callable[..., Any]) -> Callable[..., Any]:
        converting = convert(get_return_value)

        def read(answer: str, client: Any, *rest: Any) -> Any:
            return (converting if client is spark_client else get_return_value)(answer, client, *rest)

        return read

    setattr(captured, "capture_sql_exception", convert_own)  # noqa: B010  (a function, for mypy)


class _CachedClass:
    """A JVM class whose static methods are looked up once, and whose constant results are computed once."""

    def __init__(self, java_class: Any) -> None:
        self._java_class = java_class

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._java_class, name)
        if cached := CONSTANT.get(name):
            method = cached(method)
        setattr(self, name, method)
        return method


def _by_items(method: Any) -> Callable[..., Any]:
    """Cache by the items of a list: strings, or objects of the JVM, which are retained so that each id stays unique."""
    results: dict[tuple[Any, ...], tuple[Any, Any]] = {}

    def call(items: Sequence[Any]) -> Any:
        key = tuple(getattr(item, "_target_id", item) for item in items)
        if key not in results:
            results[key] = method(items), tuple(items)
        return results[key][0]

    return call


CONSTANT: Final[dict[str, Callable[[Any], Callable[..., Any]]]] = {
    "col": lambda method: lru_cache(maxsize=None, typed=True)(partial(method)),
    "toSeq": _by_items,
}
"""Static methods whose result is immutable and depends on the arguments alone: checkers call them for every column."""
