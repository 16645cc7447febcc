"""Settings of topics and brokers: DescribeConfigs, and IncrementalAlterConfigs (KIP-339).

A broker answers with its own view of a topic's settings. Only the broker itself describes and changes the settings that
it alone has.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kafka.protocol.admin import DescribeConfigsRequest, IncrementalAlterConfigsRequest

from harness.kafka_api.messages import Request, error_name, refusal, request

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
EVERY_BROKER: Final = ""
SET_CONFIG, DELETE_CONFIG = 0, 1
EXPLICIT_SOURCE: Final = {TOPIC_RESOURCE: 1, BROKER_RESOURCE: 2}
"""``DescribeConfigsResponse.ConfigSource``: TOPIC_CONFIG, DYNAMIC_BROKER_CONFIG."""


@dataclass(frozen=True)
class ConfigEntry:
    """The effective value of a setting. ``is_explicit``: the topic or broker itself has a dynamic value."""

    value: str
    is_explicit: bool

    @property
    def explicit(self) -> str | None:
        """The value that the topic or broker itself has; None where the value is inherited."""
        return self.value if self.is_explicit else None


def describe_configs(
    kind: int, names: Iterable[str], settings: Collection[str] | None = None
) -> Request[dict[str, dict[str, ConfigEntry] | str]]:
    """Return settings by topic or broker, or the error's name. ``settings``: names of settings; None for all."""
    keys = None if settings is None else list(settings)
    resources = [{"resource_type": kind, "resource_name": name, "configuration_keys": keys} for name in names]

    def decode(answer: Any) -> dict[str, dict[str, ConfigEntry] | str]:
        return {
            result.resource_name: error_name(result.error_code)
            if result.error_code
            else {c.name: ConfigEntry(c.value, c.config_source == EXPLICIT_SOURCE[kind]) for c in result.configs}
            for result in answer.results
        }

    return request(DescribeConfigsRequest, 4, decode, resources=resources)


def alter_configs(kind: int, changes: Mapping[str, Mapping[str, str | None]]) -> Request[dict[str, str]]:
    """Set values, or remove them with None; other settings stay. Return the refusals by topic or broker.

    ``changes``: by topic or broker. `EVERY_BROKER` changes the default of all brokers, also of brokers that are down
    (KIP-226).
    """
    resources = [
        {
            "resource_type": kind,
            "resource_name": name,
            "configs": [
                {"name": setting, "config_operation": DELETE_CONFIG if value is None else SET_CONFIG, "value": value}
                for setting, value in values.items()
            ],
        }
        for name, values in changes.items()
    ]
    return request(
        IncrementalAlterConfigsRequest,
        1,
        lambda answer: {result.resource_name: why for result in answer.responses if (why := refusal(result))},
        resources=resources,
    )


def values_of(entries: Mapping[str, ConfigEntry]) -> dict[str, str]:
    """Return the effective values by setting."""
    return {name: entry.value for name, entry in entries.items()}
