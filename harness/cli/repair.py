"""The command ``harness repair``."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import click
import cloup

from harness.cli.options.cluster import addresses, bootstrap_option, config_option
from harness.cli.options.common import command, envelope, format_option, given_on_command_line
from harness.cli.options.parameters import Count, FilePath, Number, Text, file_to_read
from harness.cli.options.spark import spark_options
from harness.console import JSON, MB, ConsoleProgress
from harness.errors import HarnessError, UsageError, interruptible
from harness.suggest import quoted
from harness.terminal import stderr, stdout

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.judge.verdict import Verdict
    from harness.protect.repair.plan import RepairPlan
    from harness.protect.repair.state import Partition
    from harness.spark.options import SparkOptions

MOST_MB_PER_S = 1e6
MOST_AT_ONCE = 100
LONGEST_WAIT_S = 86_400
MAX_INT32 = 2**31 - 1
REPAIR, DECISION, PACE = map(cloup.OptionGroup, ("Repair", "Undecided partitions", "Pace"))
_PARTITION = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<number>[0-9]{1,9})")
_BROKER = re.compile(r"[0-9]{1,10}")
RESUME = "run the same command again to continue; until then compaction stays paused (`harness guard status`)"


def parse_partition(text: str) -> Partition:
    """Return topic and number of ``TOPIC-PARTITION``. Raises `UsageError`."""
    match = _PARTITION.fullmatch(text)
    if match is None:
        raise UsageError(f"{quoted(text)}: give it as TOPIC-PARTITION, such as orders-0")
    return match["topic"], int(match["number"])


def parse_right(text: str) -> tuple[Partition | None, int]:
    """Return partition and broker of ``TOPIC-PARTITION=BROKER``, or only the broker. Raises `UsageError`."""
    name, equals, broker = text.rpartition("=")
    if not _BROKER.fullmatch(broker) or int(broker) > MAX_INT32:
        raise UsageError(f"{quoted(text)}: give TOPIC-PARTITION=BROKER, or BROKER together with --partition")
    return (parse_partition(name) if equals else None), int(broker)


def rights_of(rights: Sequence[str], partitions: Sequence[Partition]) -> dict[Partition, int]:
    """Return the right broker of each partition that ``--right`` is about. Raises `UsageError`."""
    decisions: dict[Partition, int] = {}
    for partition, broker in map(parse_right, rights):
        if partition is None and not partitions:
            raise UsageError(f"--right {broker}: name the partitions by --partition, or give TOPIC-PARTITION={broker}")
        if partition is not None and partitions and partition not in partitions:
            raise UsageError(f"--right {partition[0]}-{partition[1]}={broker}: --partition leaves this partition out")
        for place in partitions if partition is None else (partition,):
            if decisions.setdefault(place, broker) != broker:
                raise UsageError(
                    f"--right: both broker {decisions[place]} and broker {broker} for {place[0]}-{place[1]}"
                )
    return decisions


def read_verdict(path: Path) -> Verdict:
    """Return the verdict of an audit. Raises `UsageError`."""
    from harness.protect.repair.plan import read_audit  # noqa: PLC0415  (slow imports, only where needed)

    try:
        return read_audit(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, UsageError) as error:
        raise UsageError(f"{path}: {error}") from error


@command(
    "harness repair audit.json --bootstrap-server kafka-1:9092 --plan",
    "harness repair audit.json --bootstrap-server kafka-1:9092 --apply --throttle-mb 20",
    "harness repair audit.json --bootstrap-server kafka-1:9092 --apply --right orders-0=1 --saved-folders saved",
)
@cloup.argument("audit", type=file_to_read(), metavar="AUDIT")
@cloup.option(
    "--plan/--apply", "is_plan", default=None, group=REPAIR,
    help="Show what would be done, or do it. One of both is required.",
)  # fmt: skip
@cloup.option(
    "--partition", "partitions", group=REPAIR, multiple=True, type=Text(parse_partition), metavar="TOPIC-PARTITION",
    help="Repair this partition only; repeatable.  [default: every partition with a finding]",
)  # fmt: skip
@bootstrap_option()
@config_option
@cloup.option(
    "--right", "rights", group=DECISION, multiple=True, type=Text(parse_right), metavar="[TOPIC-PARTITION=]BROKER",
    help="The broker whose replica is right where the audit does not decide; repeatable. Without a partition: of "
    "those given by --partition.",
)  # fmt: skip
@cloup.option(
    "--saved-folders", group=DECISION, type=FilePath(file_okay=False, exists=True), metavar="DIR",
    help="The folder with saved copies of every replica, as BROKER/TOPIC-PARTITION; required for --right.",
)  # fmt: skip
@cloup.option(
    "--saved-elsewhere",
    is_flag=True,
    group=DECISION,
    help="State that they were saved elsewhere, in place of the above.",
)
@cloup.option(
    "--at-once", group=PACE, type=Count(1, MOST_AT_ONCE), default=4, show_default=True, metavar="N",
    help="Partitions that are repaired at the same time.",
)  # fmt: skip
@cloup.option(
    "--throttle-mb", group=PACE, type=Number(min=0, min_open=True, max=MOST_MB_PER_S), metavar="N",
    help="Each broker sends and receives at most so many megabytes a second of the copies.",
)  # fmt: skip
@cloup.option(
    "--wait-s", group=PACE, type=Count(1, LONGEST_WAIT_S), default=300, show_default=True, metavar="S",
    help="Give a partition up that does not change for so long, nor its copy grow.",
)  # fmt: skip
@cloup.option(
    "--spare", group=REPAIR, type=Count(0, MAX_INT32), metavar="BROKER",
    help="The broker that gets a replica meanwhile, where too few would be left in sync.  [default: any]",
)  # fmt: skip
@spark_options
@format_option
@click.pass_context
def repair(  # noqa: PLR0917
    context: click.Context,
    /,
    audit: Path,
    is_plan: bool | None,  # noqa: FBT001
    partitions: tuple[str, ...],
    bootstrap: str,
    config: Path | None,
    rights: tuple[str, ...],
    saved_folders: Path | None,
    saved_elsewhere: bool,  # noqa: FBT001
    at_once: int,
    throttle_mb: float | None,
    wait_s: int,
    spare: int | None,
    output: str,
    spark: SparkOptions,
) -> int:
    """Rebuild the replicas that an audit found wrong, from right ones, and audit again. AUDIT: its verdict.json.

    Only where the audit decides who is wrong, or a person does (--right). Compaction of the topics is paused meanwhile.
    A repair that was killed is resumed by the same command.

    Exit codes: 0 all agree, 1 something still differs, 2 undecided or unknown partitions are left, 254 refused,
    255 failed. With --plan: 0 everything that differs can be repaired, 2 something is left.
    """
    from harness.protect.repair.plan import plan_of  # noqa: PLC0415  (slow imports, only where needed)
    from harness.protect.repair.run import RepairRequest  # noqa: PLC0415
    from harness.protect.repair.saved import check_saved  # noqa: PLC0415

    options_given = given_on_command_line(context)
    if not {"bootstrap", "is_plan"} <= options_given or is_plan is None:
        raise UsageError("give --bootstrap-server, and --plan or --apply, on the command line itself")
    verdict = read_verdict(audit)
    only = [parse_partition(text) for text in partitions]
    decisions = rights_of(rights, only)
    plan = plan_of(verdict, decisions, only)
    shown = plan_of(verdict, None, only)
    if not is_plan:
        of_person = {
            undecided.partition: undecided.replicas for undecided in shown.undecided if undecided.partition in decisions
        }
        check_saved(saved_folders, saved_elsewhere, of_person)
    request = RepairRequest(
        addresses(bootstrap, config),
        plan,
        verdict.run_id,
        at_once=at_once,
        rate_bytes_s=None if throttle_mb is None else max(int(throttle_mb * MB), 1),
        patience_s=wait_s,
        spare=spare,
    )
    return _plan(request, shown, output) if is_plan else _apply(request, shown, verdict, spark, output)


def _plan(request: Any, shown: RepairPlan, output: str) -> int:
    from harness.host.clock import RealClock  # noqa: PLC0415
    from harness.protect.guard.channel import KafkaChannel  # noqa: PLC0415
    from harness.protect.repair.live import LiveRepairCluster  # noqa: PLC0415
    from harness.protect.repair.run import look  # noqa: PLC0415
    from harness.protect.repair.show import exit_code_of_plan, plan_json, show_plan  # noqa: PLC0415

    channel = KafkaChannel(request.bootstrap, RealClock())
    try:
        looked = look(request, LiveRepairCluster(request.bootstrap), channel)
    except OSError as error:
        raise HarnessError(str(error)) from error
    finally:
        channel.close()
    code = exit_code_of_plan(request.plan, looked)
    if output == JSON:
        stdout().json(envelope(**plan_json(request.plan, looked)))
        return code
    _show_decided(shown, request.plan)
    show_plan(stdout(), request.plan, looked)
    stdout().line(f"(exit code {code})")
    return code


def _apply(request: Any, shown: RepairPlan, verdict: Verdict, spark: SparkOptions, output: str) -> int:
    from harness.protect.repair.run import apply  # noqa: PLC0415
    from harness.protect.repair.show import age_text, exit_code, result_json, show_result  # noqa: PLC0415

    stderr().line(age_text(request.plan.audited_at))
    _show_decided(shown, request.plan)
    progress = ConsoleProgress()
    try:
        with interruptible(lambda: RESUME):
            result = apply(request, progress, spark)
    except OSError as error:
        raise HarnessError(f"{error}; {RESUME}") from error
    finally:
        progress.close()
    code = exit_code(request.plan, result)
    if output == JSON:
        stdout().json(envelope(exit_code=code, **result_json(request.plan, result, verdict)))
    else:
        show_result(stdout(), request.plan, result, code)
    return code


def _show_decided(shown: RepairPlan, plan: RepairPlan) -> None:
    """Print to stderr what each replica serves of the partitions that a person decides."""
    from harness.judge.finding import name_of  # noqa: PLC0415

    places = {undecided.partition for undecided in plan.undecided}
    for undecided in shown.undecided:
        if undecided.partition not in places:
            stderr().line(f"decided by a person: {name_of(undecided.partition)}")
            for text in undecided.serves or (undecided.why,):
                stderr().line(f"  {text}")
