"""The brokers' internal topics in a round: group offsets are cleaned as often as other topics, and the logs are copied.

The copies are next to the snapshots of the topics that clients write to, which checkers read:
``internal/<broker>/<topic>-<partition>``. A broker that becomes the coordinator replays its replica of
``__consumer_offsets`` (`harness.models.world.groups`): every replica is a view, and a wrong view does harm as soon as
its broker coordinates.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harness.broker_files.internal_topics.decode import CLUSTER_METADATA, CONSUMER_OFFSETS
from harness.cluster.cluster import Cluster
from harness.errors import HarnessError, WaitTimeoutError, raised_as
from harness.judge.group_offsets import GroupView, replayed
from harness.kafka_api import UNSTABLE_OFFSET, TopicPartition
from harness.kafka_api.address import Address
from harness.kafka_api.client_requests import fetch_offsets
from harness.kafka_api.connection import Connection
from harness.run_folder.store import RunFolder
from harness.schedules.operations import CommitOffset, SendOffset
from harness.schedules.placement import led_by
from harness.schedules.scenario import Phase
from harness.schedules.schedule import Step
from harness.schedules.timers import DAY_MS, FAST, FREEZE
from harness.soak.draw.plan import BROKERS, FILLER_PERIOD_S
from workloads.filler import OffsetsFiller

if TYPE_CHECKING:
    from harness.soak.play.rig import Rig

INTERNAL: Final = "internal"
OFFSETS: Final = (CONSUMER_OFFSETS, 0)
METADATA: Final = (CLUSTER_METADATA, 0)
"""Both have one partition: ``offsets.topic.num.partitions`` is set to 1."""
ANSWER_S: Final = 30.0
REFUSAL: Final = re.compile(
    rf"CoordinatorLoaderImpl - (Replaying record .*) from {CONSUMER_OFFSETS}-0 .* failed\.\n(?:\w+\.)*(\w+: .*)"
)
REFUSAL_OF_3_9: Final = re.compile(
    rf"Failed to load metadata from {CONSUMER_OFFSETS}-0 with epoch \d+ due to (?:\w+\.)*"
    r"((?:IllegalState|GroupIdNotFound|UnknownMemberId)Exception: .*)"
)
"""``CoordinatorRuntime``. Other errors: a coordinator that was replaced stops loading, for example."""
OFFSETS_SETTINGS: Final = {**FAST.topic, "compression.type": "producer"}
KEPT: Final = {**OFFSETS_SETTINGS, "delete.retention.ms": str(DAY_MS)}
"""Tombstones of groups stay longer than a round, as with Kafka's default: coordinators have to load them."""
ANSWERS: Final = "group-offsets.json"
"""In the folder of a round: a list of what each broker answers in the end, as the coordinator."""


def prepare_offsets(rig: Rig, seed: int) -> None:
    """Create ``__consumer_offsets`` with fast timers, if need be, and have it compacted. Raises `HarnessError`.

    Rounds with an odd seed keep its tombstones.
    """
    if rig.setup.shape.is_real:
        settings = KEPT if seed % 2 else OFFSETS_SETTINGS
        if not rig.cluster.admin.partitions([CONSUMER_OFFSETS]):
            # Brokers create it later else, with replicas of their choice.
            rig.cluster.admin.create_topics({OFFSETS: BROKERS}, settings)
        rig.cluster.control.thaw([CONSUMER_OFFSETS], settings)


def filled_offsets(rig: Rig, cluster: Cluster, topic: str, seed: int) -> AbstractContextManager[None]:
    """Return a block in which offsets of other groups are committed, so that cleaners pass."""
    if not rig.setup.shape.is_real:
        return nullcontext()

    def leader(partition: TopicPartition) -> Address:
        with raised_as(ConnectionError, f"the leader of {CONSUMER_OFFSETS} is not known", HarnessError, KeyError):
            return cluster.runtime.address(cluster.admin.partitions([CONSUMER_OFFSETS])[partition].leader)

    return OffsetsFiller([OFFSETS], 1, topic, leader, seed, FILLER_PERIOD_S, cluster.clock).running(Phase.BEFORE)


def take_internal(
    rig: Rig, cluster: Cluster, folder: RunFolder, steps: Iterable[Step], sizes: Mapping[int, int]
) -> None:
    """Copy the logs of coordinators and controllers, and what coordinators answer about the groups of these steps.

    Clients are closed, and every broker is up. After the coordinator, the other brokers become it, one by one, and load
    their replicas. ``sizes``: of brokers' logs as the round began. Raises `HarnessError` where a log cannot be copied,
    or a coordinator does not answer and does not say that it cannot load the partition.
    """
    if not rig.setup.shape.is_real:
        return
    cluster.admin.alter_topics([CONSUMER_OFFSETS], FREEZE)
    cluster.wait_level({OFFSETS: cluster.brokers})
    groups: dict[str, set[TopicPartition]] = defaultdict(set)
    for operation in (step.operation for step in steps):
        if isinstance(operation, SendOffset | CommitOffset):
            groups[operation.group].add((operation.topic, operation.partition))
    answers = [_answers(rig, cluster, groups, broker, sizes[broker]) for broker in _in_turn(cluster)]
    folder.write_json(folder.path / ANSWERS, answers)
    for broker in cluster.runtime.brokers:
        for topic, partition in (METADATA, OFFSETS):
            destination = folder.path / INTERNAL / str(broker) / f"{topic}-{partition}"
            cluster.runtime.copy_partition(broker, topic, partition, destination)


def serves_groups(folder: RunFolder) -> bool:
    """Return whether every broker could coordinate when the logs of a round were copied; else it is unusable."""
    return not any(content.get("refusal") for content in _read_answers(folder))


def metadata_folders(folder: RunFolder) -> dict[int, Path]:
    """Return the copies of the metadata log by broker; none of a simulated cluster."""
    return {int(path.parent.name): path for path in _copies(folder, METADATA)}


def views_of(folder: RunFolder, *, drops_pending: bool) -> list[GroupView]:
    """Return what every replica and coordinator of a round have of groups' offsets; nothing without groups."""
    views = [replayed(path, int(path.parent.name), drops_pending=drops_pending) for path in _copies(folder, OFFSETS)]
    return [*views, *map(answered, _read_answers(folder))]


def _read_answers(folder: RunFolder) -> list[Mapping[str, Any]]:
    path = folder.path / ANSWERS
    return json.loads(path.read_text()) if path.exists() else []


def _copies(folder: RunFolder, partition: TopicPartition) -> Sequence[Path]:
    return sorted((folder.path / INTERNAL).glob(f"*/{partition[0]}-{partition[1]}"))


def _in_turn(cluster: Cluster) -> Iterator[int]:
    """Make one broker after the other the coordinator, the present coordinator first, and yield each."""
    leader = cluster.admin.partitions([CONSUMER_OFFSETS])[OFFSETS].leader
    for broker in sorted(cluster.brokers, key=lambda broker: broker != leader):
        cluster.lead({OFFSETS: led_by(broker, cluster.brokers)})
        yield broker


def _answers(
    rig: Rig, cluster: Cluster, groups: Mapping[str, set[TopicPartition]], broker: int, log_size: int
) -> dict[str, Any]:
    """Return an entry of `ANSWERS`: what a coordinator answers, and why it could not load the partition, if so."""
    content: dict[str, Any] = {"partition": OFFSETS[1], "broker": broker}

    def refusal() -> str | None:
        return refusal_in(rig.spec.log_path(broker).read_bytes()[log_size:].decode(errors="replace"))

    def are_answered() -> bool:
        content["answers"] = ask(cluster.runtime.address(broker), groups)
        # Other errors: it is not ready.
        return all(answer["error"] in {None, UNSTABLE_OFFSET} for answer in content["answers"])

    try:
        cluster.wait(are_answered, f"broker {broker} to answer as the coordinator of groups", ANSWER_S)
    except WaitTimeoutError:
        if refusal() is None:
            raise
        content["answers"] = []
    return {**content, "refusal": refusal()}


def refusal_in(log: str) -> str | None:
    """Return the last reason why a coordinator could not load its partition, with the record if the log names one."""
    refusals = [f"{why} ({record})" for record, why in REFUSAL.findall(log)] or REFUSAL_OF_3_9.findall(log)
    return refusals[-1] if refusals else None


def ask(coordinator: Address, groups: Mapping[str, Collection[TopicPartition]]) -> list[dict[str, Any]]:
    """Return the coordinator's answers about the offsets of groups, in the form of `ANSWERS`. Raises OSError."""
    answers = []
    with closing(Connection(coordinator)) as connection:
        for group, partitions in groups.items():
            for topic, partition in partitions:
                answer = connection.ask(fetch_offsets(group, [(topic, partition)], require_stable=True))
                offset = answer.offsets.get((topic, partition))
                answers.append(
                    {"group": group, "topic": topic, "partition": partition, "offset": offset, "error": answer.error}
                )
    return answers


def answered(content: Mapping[str, Any]) -> GroupView:
    """Return the view of a coordinator by its answers: ``broker``, ``partition``, ``answers`` and ``refusal``."""
    keyed = [((answer["group"], (answer["topic"], answer["partition"])), answer) for answer in content["answers"]]
    return GroupView(
        content["broker"],
        content["partition"],
        "its answer as the coordinator",
        {key: a["offset"] for key, a in keyed if a["error"] != UNSTABLE_OFFSET and a["offset"] is not None},
        {key: () for key, a in keyed if a["error"] == UNSTABLE_OFFSET},
        content.get("refusal") or "",
    )
