"""Redpanda's admin API: leaders, transaction coordinators, active features, and compaction state of replicas.

Calls follow Redpanda's documentation and source of 25.3; here they were run against a stand-in only.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import requests

from harness.errors import HarnessError
from harness.kafka_api import TopicPartition
from harness.kafka_api.address import Address

KAFKA, INTERNAL = "kafka", "kafka_internal"
COORDINATED_COMPACTION = "coordinated_compaction"
TX_BATCH_REMOVAL = "log_compaction_tx_batch_removal_enabled"

_OPTIONAL_OFFSETS: Final[Mapping[str, tuple[str, ...]]] = {
    "cleanly_compacted": ("max_cleanly_compacted_offset",),  # MCCO
    "tombstone_removable": ("max_tombstone_removable_offset", "max_tombstone_removal_offset"),  # MTRO
    "transaction_free": ("max_transaction_free_offset",),  # MXFO
    "transaction_removable": ("max_transaction_removable_offset",),  # MXRO
}
"""Offsets that some versions lack, and the names that they have in others."""


class RedpandaAdmin:
    """Asks any live broker, except where one alone has the answer. ``addresses``: admin listeners of live brokers."""

    def __init__(self, addresses: Callable[[], Mapping[int, Address]]) -> None:
        self._addresses = addresses

    def brokers(self) -> set[int]:
        """Return the node ids of the cluster's brokers that are alive."""
        return {broker["node_id"] for broker in self._get("/v1/brokers") if broker.get("is_alive", True)}

    def leader(self, partition: TopicPartition, namespace: str = KAFKA) -> int | None:
        """Return the leader of a partition; None while there is none."""
        leader = self._get(_path(namespace, partition)).get("leader_id", -1)
        return int(leader) if leader is not None and leader >= 0 else None

    def transfer_leadership(self, partition: TopicPartition, target: int, namespace: str = KAFKA) -> None:
        """Make another replica the leader. Raises `HarnessError` where the leader refuses, or there is none."""
        leader = self.leader(partition, namespace)
        if leader is None:
            raise HarnessError(f"{partition[0]}-{partition[1]} has no leader that could give way to broker {target}")
        if leader != target:
            self._call("POST", leader, f"{_path(namespace, partition)}/transfer_leadership?target={target}")

    def set_config(self, settings: Mapping[str, Any]) -> int:
        """Set cluster properties; return the version of the configuration that includes them."""
        answer = self._call("PUT", None, "/v1/cluster_config", {"upsert": dict(settings), "remove": []})
        return int(answer["config_version"])

    def config_versions(self) -> dict[int, int]:
        """Return the version of each broker's configuration, by broker."""
        statuses = self._get("/v1/cluster_config/status")
        return {status["node_id"]: int(status["config_version"]) for status in statuses}

    def uuids(self) -> dict[int, str]:
        """Return the id that each broker's data directory got at its creation, by broker."""
        return {broker["node_id"]: broker["uuid"] for broker in self._get("/v1/broker_uuids")}

    def config(self) -> dict[str, Any]:
        """Return the cluster's properties."""
        return dict(self._get("/v1/cluster_config"))

    def coordinates_compaction(self) -> bool:
        """Return whether replicas coordinate their removals: the feature is active."""
        features = self._get("/v1/features")["features"]
        return any(feature["name"] == COORDINATED_COMPACTION and feature["state"] == "active" for feature in features)

    def removes_markers(self) -> bool:
        """Return whether markers are ever removed: otherwise a clean verdict on transactions means nothing."""
        return bool(self.config().get(TX_BATCH_REMOVAL))

    def compaction(self, partition: TopicPartition) -> dict[int, dict[str, Any]]:
        """Return the compaction state of each replica of a partition, by broker.

        Offsets are exclusive Raft offsets, except the high watermark and last stable offset; zero or less stands for
        never. ``committed``: of the high watermark. MCCO, MTRO, MXFO, MXRO: None where the version has none.
        """
        answer = self._get(f"/v1/debug/partition/{KAFKA}/{partition[0]}/{partition[1]}")
        return {
            (broker := int(replica["raft_state"]["node_id"])): {
                "broker": broker,
                "high_watermark": int(replica["high_watermark"]),
                "last_stable_offset": int(replica["last_stable_offset"]),
                "committed": int(replica["committed_offset"]) + 1,
                **{
                    ours: next((int(replica[name]) for name in names if replica.get(name) is not None), None)
                    for ours, names in _OPTIONAL_OFFSETS.items()
                },
            }
            for replica in answer["replicas"]
        }

    def _get(self, path: str) -> Any:
        return self._call("GET", None, path)

    def _call(self, method: str, broker: int | None, path: str, body: Any = None) -> Any:
        """Ask one broker, or each in turn until one answers. Redirects to the leader are followed."""
        addresses = self._addresses()
        if broker is not None and broker not in addresses:
            raise HarnessError(f"broker {broker} is not up: {method} {path}")
        last: Exception | None = None
        for address in addresses.values() if broker is None else [addresses[broker]]:
            url = f"http://{address}{path}"
            try:
                answer = requests.request(method, url, json=body, timeout=5.0)
            except requests.RequestException as error:
                last = error
                continue
            if not answer.ok:
                raise HarnessError(f"{method} {url}: {answer.status_code} {' '.join(answer.text.split())[:300]}")
            return answer.json() if answer.content else None
        raise HarnessError(f"no broker answers {method} {path}: {last}")


def _path(namespace: str, partition: TopicPartition) -> str:
    return f"/v1/partitions/{namespace}/{partition[0]}/{partition[1]}"
