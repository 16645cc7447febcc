"""The command ``harness repair``."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloup

from harness.cli.options import common
from harness.cli.options import parameters as kinds
from harness.console import JSON, MB, ConsoleProgress
from harness.errors import UsageError, interruptible, raised_as
from harness.host.clock import RealClock
from harness.judge.verdict import Verdict
from harness.kafka_api import TopicPartition
from harness.spark.options import SparkOptions
from harness.suggest import quoted
from harness.terminal import stderr, stdout

if TYPE_CHECKING:
    from harness.audit.explain.advice import Shell
    from harness.protect.repair.plan import Undecided
    from harness.protect.repair.run import RepairRequest

REPAIR, DECISION, PACE = map(common.Group, ("Repair", "Undecided partitions", "Pace"))
_PARTITION = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<number>[0-9]{1,9})")


def parse_partition(text: str) -> TopicPartition:
    """Return topic and number of ``TOPIC-PARTITION``. Raises `UsageError`."""
    match = _PARTITION.fullmatch(text)
    if match is None:
        raise UsageError(f"{quoted(text)}: give it as TOPIC-PARTITION, such as orders-0")
    return match["topic"], int(match["number"])


def parse_right(text: str) -> tuple[TopicPartition | None, int]:
    """Return partition and broker of ``TOPIC-PARTITION=BROKER``, or only the broker. Raises `UsageError`."""
    name, equals, broker = text.rpartition("=")
    if not kinds.is_number(broker, kinds.MOST_BROKER):
        raise UsageError(f"{quoted(text)}: give TOPIC-PARTITION=BROKER, or BROKER together with --partition")
    return (parse_partition(name) if equals else None), int(broker)


def rights_of(rights: Sequence[str], partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the right broker of each partition that ``--right`` is about. Raises `UsageError`."""
    decisions: dict[TopicPartition, int] = {}
    for partition, broker in map(parse_right, rights):
        if partition is None and not partitions:
            raise UsageError(f"--right {broker}: name the partitions by --partition, or give TOPIC-PARTITION={broker}")
        if partition is not None and partitions and partition not in partitions:
            raise UsageError(f"--right {partition[0]}-{partition[1]}={broker}: --partition leaves this partition out")
        for place in partitions if partition is None else (partition,):
            if decisions.setdefault(place, broker) != broker:
                raise UsageError(f"--right: both broker {decisions[place]} and {broker} for {place[0]}-{place[1]}")
    return decisions


# fmt: off
OPTIONS = (
    cloup.Argument(["audit"], type=kinds.FILE_TO_READ, metavar="AUDIT"),
    REPAIR.flag("--plan", "Show what would be done.", name="is_plan"),
    REPAIR.flag("--apply", "Do it.  [this or --plan is required]", name="is_apply"),
    REPAIR.option("--partition", kinds.Text(parse_partition, metavar="TOPIC-PARTITION"),
                  "Repair only this partition; repeatable.  [default: all with a finding]",
                  name="partitions", multiple=True),
    common.BOOTSTRAP,
    common.CONFIG,
    DECISION.option("--right", kinds.Text(parse_right, metavar="[TOPIC-PARTITION=]BROKER"),
                    "Broker whose replica is right where the audit does not decide; repeatable. BROKER alone is for "
                    "every --partition.", name="rights", multiple=True),
    DECISION.option("--saved-folders", kinds.EXISTING_DIRECTORY,
                    "Folder with a copy of every replica, as BROKER/TOPIC-PARTITION; needed for --right."),
    DECISION.flag("--saved-elsewhere", "Confirm that the copies are saved elsewhere, instead of --saved-folders."),
    PACE.option("--at-once", kinds.Count(1, 100), "Partitions to repair at the same time.", default=4),
    PACE.option("--throttle-mb", kinds.MEGABYTES_A_SECOND,
                "Megabytes per second that each broker sends and receives, at most."),
    PACE.option("--wait-s", kinds.Count(1, 86_400, "S"), "Give up a partition without progress for S seconds.",
                default=300),
    REPAIR.option("--spare", kinds.Count(0, kinds.MOST_BROKER, "BROKER"),
                  "Broker for a temporary replica, where too few would stay in sync.  [default: any]"),
)
# fmt: on


@common.command(
    "harness repair audit.json --bootstrap-server kafka-1:9092 --plan",
    "harness repair audit.json --bootstrap-server kafka-1:9092 --apply --throttle-mb 20",
    "harness repair audit.json --bootstrap-server kafka-1:9092 --apply --right orders-0=1 --saved-folders saved",
    options=OPTIONS,
    spark=True,
)
def repair(
    audit: Path, bootstrap: str, config: Path | None, output: str, *, spark: SparkOptions, **parameters: Any
) -> int:
    """Rebuild the replicas that an audit found wrong, and audit again.

    AUDIT is the verdict of `harness audit` as JSON. Repairs only where the audit decides which replica is wrong, or you
    do (--right). Pauses compaction of the topics meanwhile. Run the same command again to resume a repair.

    Exit codes: 0 all replicas agree, 1 some still differ, 2 some partitions are undecided or unknown, 254 usage or
    set-up error, 255 failed. With --plan: 0 all differences can be repaired, 2 some cannot.
    """
    from harness.protect.repair.plan import check_saved, plan_of, read_audit  # noqa: PLC0415  (slow imports, only where needed)
    from harness.protect.repair.run import RepairRequest  # noqa: PLC0415

    is_chosen = parameters["is_plan"] is not parameters["is_apply"]
    required = {
        "--bootstrap-server on the command line itself": "bootstrap" in common.options_given(),
        "--plan or --apply" + ", and not both" * parameters["is_plan"]: is_chosen,
    }
    if missing := [text for text, is_given in required.items() if not is_given]:
        raise UsageError(f"give {' and '.join(missing)}")
    with raised_as(UsageError, f"{audit} is not the verdict of an audit", OSError, ValueError, UsageError):
        verdict = read_audit(json.loads(audit.read_text("utf-8")))
    only = [parse_partition(text) for text in parameters["partitions"]]
    decisions = rights_of(parameters["rights"], only)
    plan, without_decisions = plan_of(verdict, decisions, only), plan_of(verdict, None, only)
    decided = [undecided for undecided in without_decisions.undecided if undecided.partition in decisions]
    if not parameters["is_plan"] and not parameters["saved_elsewhere"]:
        check_saved(parameters["saved_folders"], {undecided.partition: undecided.replicas for undecided in decided})
    _show_decided(decided)
    throttle_mb = parameters["throttle_mb"]
    request = RepairRequest(
        common.addresses(bootstrap, config),
        plan,
        verdict.run_id,
        at_once=parameters["at_once"],
        rate_bytes_s=None if throttle_mb is None else max(int(throttle_mb * MB), 1),
        patience_s=parameters["wait_s"],
        spare=parameters["spare"],
    )
    if parameters["is_plan"]:
        return _plan(request, output)
    from harness.audit.explain.advice import ANY_CONFIG, Shell  # noqa: PLC0415

    shell = Shell(bootstrap, ANY_CONFIG if config is None else str(config))
    return _apply(request, verdict, spark, output, shell)


def _plan(request: RepairRequest, output: str) -> int:
    from harness.protect.guard.channel import KafkaChannel  # noqa: PLC0415
    from harness.protect.repair.live import LiveRepairCluster  # noqa: PLC0415
    from harness.protect.repair.run import look  # noqa: PLC0415
    from harness.protect.repair.show import exit_code_of_plan, plan_json, show_plan  # noqa: PLC0415

    with closing(KafkaChannel(request.bootstrap, RealClock())) as channel:
        looked = look(request, LiveRepairCluster(request.bootstrap), channel)
    code = exit_code_of_plan(request.plan, looked)
    if output == JSON:
        stdout().json(common.envelope(**plan_json(request.plan, looked)))
        return code
    show_plan(stdout(), request.plan, looked)
    stdout().line(f"(exit code {code})")
    return code


def _apply(request: RepairRequest, verdict: Verdict, spark: SparkOptions, output: str, shell: Shell) -> int:
    from harness.protect.repair.run import RESUME, apply  # noqa: PLC0415
    from harness.protect.repair.show import age_text, exit_code, result_json, show_result  # noqa: PLC0415

    stderr().line(age_text(request.plan.audited_at))
    with closing(ConsoleProgress()) as progress, interruptible(lambda: RESUME):
        result = apply(request, progress, spark)
    code = exit_code(request.plan, result)
    if output == JSON:
        stdout().json(common.envelope(exit_code=code, **result_json(request.plan, result, verdict)))
    else:
        show_result(stdout(), request.plan, result, code, shell)
    return code


def _show_decided(decided: Sequence[Undecided]) -> None:
    """Print to stderr the records that each replica serves of the partitions that a person decides."""
    for undecided in decided:
        stderr().line(f"decided by a person: {undecided.partition[0]}-{undecided.partition[1]}")
        for text in undecided.serves or (undecided.why,):
            stderr().line(f"  {text}")
