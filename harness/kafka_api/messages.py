"""Requests to brokers as data: a message of Kafka's protocol, with the function that decodes the answer to it.

Messages are kafka-python's; their structures are dictionaries here. `harness.kafka_api.connection` sends them.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import kafka.errors
from kafka.protocol.api_message import ApiMessage

from harness.errors import HarnessError
from harness.kafka_api import TopicPartition

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class RefusedError(HarnessError):
    """A broker rejects a request, and retrying would not help."""


class RetriableError(HarnessError, ConnectionError):
    """A broker rejects a request, and may accept it later."""


@dataclass(frozen=True)
class Request(Generic[T_co]):
    """A request. ``decode`` raises `HarnessError` where the broker refuses, unless it returns refusals by name."""

    message: ApiMessage
    decode: Callable[[Any], T_co]


def message(kind: type[ApiMessage], version: int, **fields: Any) -> ApiMessage:
    """Build a message; a structure is a dictionary of its fields. Raises KeyError for an unknown field."""
    return kind[version](**{name: _structured(kind.fields[name], value) for name, value in fields.items()})


def request(kind: type[ApiMessage], version: int, decode: Callable[[Any], T], **fields: Any) -> Request[T]:
    """Build a request of a message's fields."""
    return Request(message(kind, version, **fields), decode)


def acknowledged(
    kind: type[ApiMessage],
    version: int,
    action: str,
    *,
    accepted: int | None = None,
    partitions: int = 0,
    **fields: Any,
) -> Request[None]:
    """Build a request whose answer has errors only. ``action``, ``accepted``: as in `raise_for_errors`.

    ``partitions``: the answer has so many; one that leaves some out acknowledges nothing.
    """

    def decode(answer: Any) -> None:
        raise_for_errors(answer, action, accepted=accepted)
        raise_if_incomplete(answer, action, partitions)

    return request(kind, version, decode, **fields)


def raise_if_incomplete(answer: Any, action: str, partitions: int) -> None:
    """Raise `RefusedError` for an answer that has fewer partitions than this."""
    # No partition contains another.
    answered = sum(bool(part.keys() & {"index", "partition_index"}) for part in _structures(answer.to_dict()))
    if answered < partitions:
        raise RefusedError(f"{action}: the answer has {answered} of {partitions} partitions")


def _structures(part: Any) -> Iterator[dict[str, Any]]:
    """Yield every structure of an answer, at any depth."""
    if isinstance(part, dict):
        yield part
    for item in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from _structures(item)


def _structured(field: Any, value: Any) -> Any:
    if isinstance(value, dict):
        return field(**{name: _structured(field.fields[name], item) for name, item in value.items()})
    return [_structured(field, item) for item in value] if isinstance(value, list) else value


def per_topic(
    entries: Iterable[tuple[TopicPartition, Any]], *, name: str = "name", partitions: str = "partitions"
) -> list[dict[str, Any]]:
    """Return what a request has of each partition, in lists per topic. ``name`` and ``partitions``: names of fields."""
    topics: dict[str, list[Any]] = {}
    for (topic, _), entry in entries:
        topics.setdefault(topic, []).append(entry)
    return [{name: topic, partitions: of_topic} for topic, of_topic in topics.items()]


def numbers_per_topic(
    tps: Iterable[TopicPartition], *, name: str = "name", partitions: str = "partition_indexes"
) -> list[dict[str, Any]]:
    """Return the numbers of partitions, in lists per topic."""
    return per_topic(((tp, tp[1]) for tp in tps), name=name, partitions=partitions)


def partitions_in(topics: Iterable[Any]) -> Iterator[tuple[TopicPartition, Any]]:
    """Yield each partition of an answer's topics."""
    for topic in topics:
        for partition in topic.partitions:
            yield (topic.name, partition.partition_index), partition


def results_in(topics: Iterable[Any], read: Callable[[Any], T]) -> dict[TopicPartition, T | str]:
    """Return what ``read`` gets of each partition of an answer's topics, or an error's name."""
    return {tp: error_name(p.error_code) if p.error_code else read(p) for tp, p in partitions_in(topics)}


def error_name(code: int) -> str:
    """Return the name of an error in an answer."""
    return str(kafka.errors.for_code(code).__name__)


ERROR_FIELDS: Final = ("error_code", "partition_error_code")


def errors_in(part: Any) -> list[tuple[int, str]]:
    """Return the code of each error in an answer, at any depth, with the broker's own words or the error's name."""
    codes = ((code, at) for at in _structures(part) for name in ERROR_FIELDS if (code := at.get(name)))
    return [(code, at.get("error_message") or error_name(code)) for code, at in codes]


def raise_for_errors(answer: Any, action: str, *, accepted: int | None = None) -> None:
    """Raise `RefusedError` for a final error in an answer, else `RetriableError` for any error.

    ``action``: the rejected action. ``accepted``: the code of an answer that is not an error.
    """
    errors = [(code, why) for code, why in errors_in(answer.to_dict()) if code != accepted]
    final = [why for code, why in errors if not kafka.errors.for_code(code).retriable]
    if errors:
        raised = RefusedError if final else RetriableError
        raise raised(f"{action}: {', '.join(final or [why for _, why in errors])}")
