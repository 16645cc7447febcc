"""Simulated brokers whose links are slow: every message takes longer than on one host."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from harness.runtimes import sim

if TYPE_CHECKING:
    from harness.runtimes.base import ClusterSpec, PreparedRuntime, RuntimeRequest

DELAY_MS = 5


def prepare(request: RuntimeRequest) -> PreparedRuntime:
    """Be ready for a simulated target, as `harness.runtimes.sim` is."""

    def make(spec: ClusterSpec) -> sim.SimRuntime:
        runtime = sim.SimRuntime(spec, sim.rules_for(request.target))
        for broker in spec.brokers:
            runtime.delay(broker, DELAY_MS)
        return runtime

    return replace(
        sim.prepare(request), facts={"name": "sim-slow", "clock": "virtual", "delay_ms": DELAY_MS}, make=make
    )
