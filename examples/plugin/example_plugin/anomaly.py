"""The anomaly lagging-lso: its scenario, and the module of its checker, which only checks import."""

from harness.schedules.catalog import PluginAnomaly, commit, put
from harness.schedules.scenario import Scenario

NAME = "lagging-lso"
ANOMALY = PluginAnomaly(
    name=NAME,
    finder="example_plugin.lagging_lso",
    scenarios=(
        Scenario(
            name="lagging-lso",
            anomaly=NAME,
            payload="value",
            summary="A transaction is committed while a replica is down; the replica serves less than the others.",
            before=(put("tx", "K", "V"),),
            outage=(commit("tx"), put("plain", "K", "newer-value")),
        ),
    ),
)
