"""The Spark session that checkers run in."""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext, accumulators
from pyspark.errors.exceptions import captured
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter

from harness.spark.jvm import connect
from harness.spark.spec import SparkSpec, launch, options_of, public, set_environment
from harness.spark.threads import name_call_sites

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Sequence
    from pathlib import Path

log = logging.getLogger("harness")


def _ignore_broken_connection(*_: object) -> None:
    """Say nothing: a JVM that is ended on purpose breaks the connection to its accumulator server."""


for _server in (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer):
    setattr(_server, "handle_error", _ignore_broken_connection)  # noqa: B010  (a method, for mypy)


NUMPY_CONVERTERS = (NumpyArrayConverter, NumpyScalarConverter)
LOOKED_UP = ("functions", "org.apache.spark.sql.functions", "PythonUtils", "PythonSQLUtils")
"""Classes that pyspark's DataFrames ask of the JVM by name, for every column anew."""


def start_session(spec: SparkSpec, launched: tuple[subprocess.Popen[bytes], Path] | None = None) -> SparkSession:
    """Start the session; all it writes goes to ``scratch_dir``, its output to ``log_path``.

    ``launched``: its JVM, where that was started before. Once in a process: pyspark never lets go of its gateway.
    """
    # What a JVM that is ended on purpose leaves unanswered is no news.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    set_environment(spec.options)
    options = options_of(spec)
    public_conf, whole = (SparkConf(loadDefaults=False) for _ in range(2))
    public_conf.setAll(list(public(options).items()))
    whole.setAll(list(options.items()))
    started = launched or launch(spec)
    gateway = _gateway_by_submit(spec, public_conf) if started is None else connect(*started)
    _convert_no_arrays(gateway)
    _convert_only_own_errors(gateway)
    session = session_on(SparkContext(conf=whole, gateway=gateway))
    _look_up_once(gateway)
    gateway.gateway_property.enable_memory_management = spec.outlives_jobs
    name_call_sites(session)
    return session


def _gateway_by_submit(spec: SparkSpec, public_conf: SparkConf) -> Any:
    spec.scratch_dir.mkdir(parents=True, exist_ok=True)
    with spec.log_path.open("ab") as log:
        return launch_gateway(public_conf, {"stdout": log, "stderr": log, "cwd": spec.scratch_dir})


def session_on(context: SparkContext) -> SparkSession:
    """Return the fast session where this PySpark has its private constructors, else the one of `SparkSession.builder`.

    Both give the same results.
    """
    try:
        return _without_extensions(context)
    except (AttributeError, TypeError, Py4JError) as error:
        log.info("PySpark's constructor of sessions has changed; Spark starts a second slower: %s", error)
        return SparkSession.builder.getOrCreate()


def _without_extensions(context: SparkContext) -> SparkSession:
    """Return a session without the extensions in Spark's jars.

    The extensions are MLlib's functions, which no checker uses; to register them takes a second of Scala reflection.
    """
    jvm: Any = context._jvm  # noqa: SLF001  (there is no other way to it)
    none, nothing = jvm.scala.Option.empty(), jvm.scala.collection.immutable.HashMap()
    extensions = jvm.org.apache.spark.sql.SparkSessionExtensions()
    java_context = context._jsc.sc()  # noqa: SLF001
    session = jvm.org.apache.spark.sql.classic.SparkSession(java_context, none, none, extensions, nothing, nothing)
    return SparkSession(context, session)


def _convert_no_arrays(gateway: Any) -> None:
    """Leave out pyspark's conversion of NumPy arguments, which are never passed: its first use imports pandas."""
    client = gateway._gateway_client  # noqa: SLF001  (it has no other name)
    client.converters = [one for one in client.converters if not isinstance(one, NUMPY_CONVERTERS)]


def _convert_only_own_errors(gateway: Any) -> None:
    """Keep pyspark from converting the exceptions of other JVMs, such as the Java client's.

    It replaces py4j's reading of answers for the whole process, and asks Spark's JVM about an exception that is
    another's.
    """
    convert, own = captured.capture_sql_exception, gateway._gateway_client  # noqa: SLF001  (it has no other name)

    def convert_own(get_return_value: Callable[..., Any]) -> Callable[..., Any]:
        converting = convert(get_return_value)

        def read(answer: str, client: Any, *rest: Any) -> Any:
            return (converting if client is own else get_return_value)(answer, client, *rest)

        return read

    setattr(captured, "capture_sql_exception", convert_own)  # noqa: B010  (a function, for mypy)


class _Remembered:
    """A JVM class whose static methods are looked up once, and whose constant results are computed once."""

    def __init__(self, java_class: Any) -> None:
        self._java_class = java_class

    def __getattr__(self, name: str) -> Any:
        """Ask the JVM the first time; from then on this is found before it is called."""
        found = getattr(self._java_class, name)
        if (remember := CONSTANT.get(name)) is not None:
            found = remember(found)
        setattr(self, name, found)
        return found


def _by_value(method: Any) -> Callable[..., Any]:
    @lru_cache(maxsize=None, typed=True)
    def of(value: Any) -> Any:
        return method(value)

    return of


def _by_items(method: Any) -> Callable[..., Any]:
    """Remember by the items of a list: strings, or objects of the JVM, which are kept, so that no id stands for two."""
    known: dict[tuple[Any, ...], tuple[Any, Any]] = {}

    def of(items: Sequence[Any]) -> Any:
        key = tuple(getattr(item, "_target_id", item) for item in items)
        if key not in known:
            known[key] = method(items), tuple(items)
        return known[key][0]

    return of


CONSTANT: Final[dict[str, Callable[[Any], Callable[..., Any]]]] = {"col": _by_value, "toSeq": _by_items}
"""Static methods whose result is immutable and depends on the arguments alone: checkers call them for every column."""


def _look_up_once(gateway: Any) -> None:
    """Keep py4j from asking the JVM for the same names over and over, in every package of all of Spark's jars."""
    for name in LOOKED_UP:
        setattr(gateway.jvm, name, _Remembered(getattr(gateway.jvm, name)))
