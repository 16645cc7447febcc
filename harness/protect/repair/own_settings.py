"""Own settings of topics and brokers, for the throttle. A broker's are read and changed by the broker itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafka.protocol.admin import DescribeConfigsRequest, IncrementalAlterConfigsRequest

from harness.errors import HarnessError
from harness.kafka_api import wire
from harness.kafka_api.admin import BROKER_RESOURCE, DELETE_CONFIG, SET_CONFIG, TOPIC_RESOURCE
from harness.protect.repair.throttle import BROKER, TOPIC

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from harness.kafka_api.wire import Address
    from harness.protect.repair.live import LiveRepairCluster

KINDS: Final = {TOPIC: TOPIC_RESOURCE, BROKER: BROKER_RESOURCE}
OWN_SOURCE: Final = {TOPIC: 1, BROKER: 2}
"""``DescribeConfigsResponse.ConfigSource``: TOPIC_CONFIG, DYNAMIC_BROKER_CONFIG."""


class LiveSettings:
    """Implements `harness.protect.repair.throttle.Settings`."""

    def __init__(self, cluster: LiveRepairCluster) -> None:
        """Store the cluster, which knows the addresses of its brokers."""
        self._cluster = cluster

    def own(self, kind: str, name: str, names: Collection[str]) -> dict[str, str | None]:
        """Return own values. Raises `HarnessError` where the broker refuses, OSError where it does not answer."""
        Resource = DescribeConfigsRequest.DescribeConfigsResource  # noqa: N806
        resource = Resource(resource_type=KINDS[kind], resource_name=name, configuration_keys=list(names))
        answer = wire.call(self._address(kind, name), DescribeConfigsRequest[4](resources=[resource]))
        (result,) = answer.results
        _raise_for(result, kind, name)
        own: dict[str, Any] = {c.name: c.value for c in result.configs if c.config_source == OWN_SOURCE[kind]}
        return {setting: own.get(setting) for setting in names}

    def alter(self, kind: str, name: str, values: Mapping[str, str | None]) -> None:
        """Set values (KIP-339). Raises as `own`."""
        Resource = IncrementalAlterConfigsRequest.AlterConfigsResource  # noqa: N806
        configs = [
            Resource.AlterableConfig(
                name=setting, config_operation=DELETE_CONFIG if value is None else SET_CONFIG, value=value
            )
            for setting, value in values.items()
        ]
        resource = Resource(resource_type=KINDS[kind], resource_name=name, configs=configs)
        request = IncrementalAlterConfigsRequest[1](resources=[resource], validate_only=False)
        (result,) = wire.call(self._address(kind, name), request).responses
        _raise_for(result, kind, name)

    def _address(self, kind: str, name: str) -> Address:
        return self._cluster.address(int(name)) if kind == BROKER else self._cluster.addresses[0]


def _raise_for(result: Any, kind: str, name: str) -> None:
    if result.error_code:
        raise HarnessError(f"settings of {kind} {name}: {result.error_message or wire.error_name(result.error_code)}")
