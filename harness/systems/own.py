"""A user's own system under test (`harness.targets.own`): Kafka's protocol, and only the settings that it supports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from harness.errors import UsageError
from harness.kafka_api.admin import Admin
from harness.runtimes.base import Runtime
from harness.schedules.placement import Placement
from harness.schedules.timers import Timers
from harness.systems import System, SystemSettings
from harness.systems.kafka import KafkaControl
from harness.targets.own import REGISTERED, SystemFile

if TYPE_CHECKING:
    from harness.runtimes.local import LocalRuntime
    from harness.targets import Target

UNSUPPORTED_NEMESES = frozenset({"controller-kill", "power-failure"})
"""The harness does not know the controllers of the system, and its agent for syncs is for Kafka's brokers."""


def system_of(own: SystemFile) -> System:
    """Return the system that a file describes."""
    supports = own.supports

    def settings(target: Target, timers: Timers, nemesis_settings: Mapping[str, str]) -> SystemSettings:
        """Return the supported settings of timers. Raises `UsageError` for a setting that the nemesis needs."""
        for name in nemesis_settings:
            if not supports.sets(name):
                raise UsageError(f"the nemesis needs the setting {name}, which is not among supports.timers")
        topic = {name: value for name, value in timers.topic.items() if name == "cleanup.policy" or supports.sets(name)}
        broker = {name: value for name, value in timers.broker.items() if supports.sets(name)}
        return topic, {**broker, **nemesis_settings, **target.broker_settings}

    def control(runtime: Runtime, admin: Admin) -> KafkaControl:
        requests = KafkaControl(runtime, admin, lists_open=supports.describe_producers)
        processes = cast("LocalRuntime", runtime).own
        if processes is not None and own.broker.ready != REGISTERED:
            requests.registered = processes.ready
        return requests

    def why_unfit(placement: Placement) -> str | None:
        if len(placement.brokers) > supports.brokers:
            return f"--brokers {len(placement.brokers)}: {own.name} supports {supports.brokers} (supports.brokers)"
        if placement.absent and (missing := supports.missing_for_replicas()):
            return f"{own.name} does not support what runs with replicas need: {', '.join(missing)} (table [supports])"
        return None if supports.transactions else f"{own.name} does not support transactions (supports.transactions)"

    return System(own.name, settings, control, why_unfit=why_unfit, unsupported_nemeses=UNSUPPORTED_NEMESES)
