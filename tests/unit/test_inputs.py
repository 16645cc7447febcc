"""Every option of every command against every kind of value: accepted where it is legal, else one answer.

Nothing is listed by hand: commands, options, arguments and their types come from the command line itself. A process, a
connection or a server that would be started raises `Began` instead, which is how a test sees that a value was accepted.
"""

import itertools
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, NoReturn

import click
import pytest
import requests.sessions  # noqa: F401  (urllib3 binds a socket when it is first imported)
from test_command_line import LEAVES

from harness.cli import main as cli
from harness.cli.audit_key import parse_key
from harness.cli.options.parameters import FilePath, Number, Text
from harness.cli.run import OPTIONS, command_line
from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, EXIT_UNKNOWN, EXIT_USAGE, UsageError
from harness.host.ports import free_ports
from harness.play import run
from harness.play.options import RunOptions, raise_if_contradictory
from harness.targets import find_target

HUGE = "9" * 400
WHITE = ("", " ", "\n")
UNSEEN = ("a\nb", "\udcff", "a\x1b[31m")
UNKNOWN = "no such ключ"
NUMBERS = ("0", "-1", "1.5", "100000000", HUGE, f"-{HUGE}", "nan", "inf", "-inf", "1e400", "0x10", "\u0663")
LONG = "x" * 5000
VALUES = (*WHITE, *UNSEEN, UNKNOWN, *NUMBERS, LONG, "a,b", "--", "-1=2", "topic.=", "=", "🦀", "../..", "true")
SHOWN = 30
"""So many characters of a value are looked for in an error."""


class Began(BaseException):
    """Something was about to be started: the arguments were accepted."""


def began(*_: Any, **__: Any) -> NoReturn:
    raise Began


@pytest.fixture(autouse=True)
def _nothing_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(subprocess.Popen, "__init__", began)
    monkeypatch.setattr(os, "fork", began)
    for name in ("connect", "connect_ex", "bind"):
        monkeypatch.setattr(socket.socket, name, began)
    monkeypatch.setattr(cli, "_log_to_stderr", lambda **_: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setenv("COMPACTION_HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    for name in ("run", "copy", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "copy" / "t-0").mkdir()
    (tmp_path / "copy" / "t-0" / "00000000000000000000.log").touch()
    (tmp_path / "file").write_text("n1\nn2\nn3\n")
    (tmp_path / "run" / "manifest.json").write_text("{}")
    texts = dict.fromkeys(("verdict", "reason", "run_id"), "")
    objects: dict[str, Any] = {name: {} for name in ("target", "timings_s", "checker_errors")}
    audit = {"schema": 1, **texts, **objects, "findings": [], "scenarios": []}
    (tmp_path / "audit.json").write_text(json.dumps(audit))


COMMANDS = {tuple(name.split()): one for name, one in LEAVES.items() if not isinstance(one, click.Group)}
PARAMETERS = [
    pytest.param(path, parameter, id=f"{' '.join(path)} {parameter.opts[0]}")
    for path, command in COMMANDS.items()
    for parameter in command.params
    if not (isinstance(parameter, click.Option) and parameter.is_flag)
]
NEEDED = {
    ("run", "target"): ("--target", "kafka-3.9"), ("run", "anomaly"): ("--anomaly", "stuck-lso"),
    ("run", "runtime"): ("--runtime", "local"), ("topics",): ("--topic", "t"),
    ("bootstrap",): ("--bootstrap-server", "127.0.0.1:1"), ("disk", "brokers"): ("--broker", "1=copy"),
    ("disk", "topics"): ("--topic", "t"), ("key", "key"): ("--key", "K"),
    ("key", "bootstrap"): ("--bootstrap-server", "127.0.0.1:1"), ("watch", "state"): ("--state", "state"),
    ("explore", "target"): ("--target", "sim-kafka"), ("conform", "target"): ("--target", "kafka-3.9"),
    ("nightly", "targets"): ("--targets", "kafka-3.9"), ("serve", "results"): ("--results", "empty"),
    ("report", "results"): ("--results", "empty"), ("run_dir",): ("run",), ("compare", "before"): ("run",),
    ("compare", "after"): ("run",), ("out",): ("--out", "site"), ("target_name",): ("kafka-3.9",),
    ("verify", "jar"): ("file",), ("repair", "audit"): ("audit.json",), ("soak", "target"): ("--target", "kafka-3.9"),
    ("repair", "is_plan"): ("--plan",), ("verify", "name"): ("--target", "kafka-3.9"),
}  # fmt: skip
"""Arguments that a command needs together with the option under test: by command and parameter, or by parameter."""


def needed(path: tuple[str, ...], but: str) -> list[str]:
    words: list[str] = []
    for parameter in COMMANDS[path].params:
        name = str(parameter.name)
        given = NEEDED.get((path[-1], name)) or NEEDED.get((name,))
        assert given or not parameter.required, f"no sample for {path} {name}"
        if given and name != but and (parameter.required or (path[-1], name) in NEEDED):
            words += given
    return words


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> str | None:
    """Return the one sentence with which a command line is refused, None where it was accepted."""
    monkey = pytest.MonkeyPatch()
    monkey.setattr(sys, "argv", ["harness", *arguments])
    capsys.readouterr()
    try:
        cli.main()
    except Began:
        return None
    except SystemExit as ended:
        code = ended.code
    finally:
        monkey.undo()
    captured = capsys.readouterr()
    if code in {EXIT_CLEAN, EXIT_ANOMALY, EXIT_UNKNOWN}:
        return None
    assert code == EXIT_USAGE, (arguments, code, captured.err)
    assert captured.out == "", arguments
    (line,) = [line for line in captured.err.splitlines() if line.startswith("harness: ")]
    assert captured.err.splitlines()[-1] == line, (arguments, captured.err)
    return line


def is_illegal(type_: click.ParamType[Any], value: str) -> bool:
    """Return whether every command must reject the value for an option of the type."""
    if isinstance(type_, click.Choice):
        return value not in type_.choices
    if isinstance(type_, Number):
        return not is_within(type_, value)
    if value in WHITE:
        return True
    if isinstance(type_, FilePath):
        return value == LONG
    assert isinstance(type_, Text), f"no type of harness.cli.options.parameters: {type_}"
    # Any text may be a key.
    is_checked = type_.is_list or type_.check not in {Text().check, parse_key}
    return value in UNSEEN or (is_checked and value in {UNKNOWN, LONG})


def is_within(type_: Number, value: str) -> bool:
    try:
        number = int(value) if type_.is_whole else float(value)
    except ValueError:
        return False
    return type_.min <= number <= type_.max and not (type_.min_open and number == type_.min)


@pytest.mark.parametrize(("path", "parameter"), PARAMETERS)
def test_every_value(path: tuple[str, ...], parameter: click.Parameter, capsys: pytest.CaptureFixture[str]) -> None:
    is_option = isinstance(parameter, click.Option)
    name = parameter.opts[0] if is_option else parameter.make_metavar(click.Context(COMMANDS[path]))
    rest = needed(path, str(parameter.name))
    arguments = [one for one in COMMANDS[path].params if isinstance(one, click.Argument)]
    is_first_of_two = len(arguments) > 1 and parameter is arguments[0]
    assert not is_option or not isinstance(parameter.type, click.types.StringParamType), "any text: give it a type"
    # A legal value may not exist, or may contradict other options: then any option is named, or the folder.
    names = {
        name.strip("[]."),
        *(word for word in rest if word.startswith("--")),
        "run/manifest.json",
        " in copy",
        " not a jar",
    }
    for value in VALUES:
        tried = [name, value] if is_option else ["--", value]
        output = answer(capsys, *path, *(tried + rest if is_first_of_two else rest + tried))
        if is_illegal(parameter.type, value):
            assert output is not None, f"accepted: {name} {value!r}"
            assert name.strip("[].") in output, (value, output)
            assert value[:SHOWN] in output or repr(value)[1:SHOWN] in output, (value, output)
        assert output is None or any(name in output for name in names), (value, output)


def test_every_number_has_bounds_and_ports_end_somewhere() -> None:
    """No number is so large that a command computes for minutes: `--partitions 100000000` did."""
    parameters = [(path, parameter) for path, command in COMMANDS.items() for parameter in command.params]
    assert sum(isinstance(parameter.type, Number) for _, parameter in parameters) > len(COMMANDS) / 2
    of_click = (click.types.IntParamType, click.types.FloatParamType)
    assert [(path, parameter.opts) for path, parameter in parameters if isinstance(parameter.type, of_click)] == []
    with pytest.raises(UsageError, match="--port-base 65530: 8 ports are needed; give 65528 or less"):
        free_ports(8, base=65_530)


SAMPLES = {
    "target": "kafka-4.4", "anomaly": "all", "nemesis": "pause", "client": "java", "runtime": "docker",
    "nodes": "a,b,c", "nodes_file": "file", "ssh_user": "me", "ssh_port": "2222", "ssh_key": "file",
    "ssh_known_hosts": "file", "ssh_pins": "SHA256:abc", "image": "apache/kafka:4.4.0", "command_config": "file",
    "timers": "10m", "brokers": "5", "replication_factor": "2", "partitions": "3", "absent": "2", "seed": "7",
    "settings": "topic.segment.ms=9", "time_limit_s": "60", "port_base": "20000", "keep": "",
    "application": "streams", "gate": "", "gate_options": "hold=markers", "guard": "",
    "results": "elsewhere", "spark_master": "local[3]", "spark_conf": "spark.x=1", "schedule": "schedule.json",
    "patch": "patch.jar",
}  # fmt: skip
"""A legal value that is not the default, of each parameter of `run`; "" for a flag."""
SCHEDULE = (
    '{"schema": 1, "finding": "stuck-lso", "target": "sim-kafka", "case": "c", "steps": ['
    '{"do": "write", "process": "t", "key": "K"}, {"do": "inject", "fault": "outage", "broker": 2},'
    '{"do": "end", "process": "t", "outcome": "commit"}, {"do": "write", "process": "p", "key": "K"},'
    '{"do": "heal", "fault": "outage", "broker": 2}]}'
)
TANSU = Path(__file__).parents[2] / "examples" / "systems" / "tansu.toml"
NOT_IN_PAIRS = {"verbose", "quiet", "run_dir", "output", "help"}


def test_no_option_of_a_run_is_dropped_for_another(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "schedule.json").write_text(SCHEDULE)
    with zipfile.ZipFile(tmp_path / "patch.jar", "w") as patch:
        patch.writestr("kafka/Kafka.class", b"changed")
    monkeypatch.setenv("COMPACTION_HARNESS_CACHE", str(tmp_path / "cache"))
    requests: list[RunOptions] = []

    def plan_run(options: RunOptions) -> NoReturn:
        raise_if_contradictory(options, find_target(options.target))
        requests.append(options)
        raise Began

    monkeypatch.setattr(run, "plan_run", plan_run)
    options = {str(p.name): p for p in COMMANDS["run",].params if p.name not in NOT_IN_PAIRS}
    assert options.keys() == SAMPLES.keys()

    def words(names: tuple[str, ...]) -> list[str]:
        base = {"target": "kafka-3.9", "anomaly": "stuck-lso"}
        if "schedule" in names:
            base.pop("anomaly")
        chosen = {**base, **{name: SAMPLES[name] for name in names}}
        return ["run", *(word for name, value in chosen.items() for word in (options[name].opts[0], value) if word)]

    def requested(names: tuple[str, ...]) -> tuple[RunOptions | None, str]:
        requests.clear()
        output = answer(capsys, *words(names))
        return (None, output) if output else (requests[-1], "")

    alone = {name: requested((name,))[0] for name in SAMPLES}
    accepted = 0
    for pair in itertools.combinations(SAMPLES, 2):
        both, output = requested(pair)
        if both is None:
            assert any(options[name].opts[0] in output for name in pair), (pair, output)
        else:
            accepted += 1
            assert both not in {name: alone[name] for name in pair}.values(), f"one of {pair} is ignored"
    assert accepted > len(SAMPLES)


@pytest.mark.parametrize(("arguments", "expected"), [
    ("--runtime local --nodes a,b,c", "--nodes is for --runtime ssh, and contradicts --runtime local"),
    ("--runtime local --image x:1", "--image is for --runtime docker, and contradicts --runtime local"),
    ("--nodes a,b,c --image x:1", "--nodes is for --runtime ssh, and contradicts --image"),
    ("--nodes a,b,c --nodes-file file", "leave out --nodes or --nodes-file: both name the hosts"),
    ("--ssh-user me", "--ssh-user is for --runtime ssh: give its hosts with --nodes or --nodes-file"),
    ("--runtime ssh", "--runtime ssh needs hosts"),
    ("--nodes a,b", "--nodes names 2 hosts: give 3 to 7, one a broker"),
    ("--nodes a,b,c --brokers 4", "--brokers 4: --nodes names 3 hosts"),
    ("--set topic.segment.ms=1 --set topic.segment.ms=2", "topic.segment.ms is '1' already"),
    ("--set topic.nosuch.setting=1", "Kafka 3.9.2 has no such setting of a topic"),
    ("--set broker.log.dirs=/x", "the harness sets log.dirs itself"),
    ("--partitions 100000000", "'--partitions': '100000000' is not between 1 and 100"),
    ("--time-limit nan", "'--time-limit': 'nan' is not a number above 0 to"),
    ("--target redpanda-26.2 --runtime local", "--runtime local: redpanda-26.2 does not run there; choose docker"),
    ("--runtime ssh --nodes a,b,c --command-config file", "--command-config is for --runtime local or docker"),
    ("--nodes a,b,c --command-config file", "for --runtime local or docker, and contradicts --nodes"),
    ("--target redpanda-26.2 --command-config file", "--command-config is for Kafka's brokers only"),
    ("--target sim-kafka --port-base 20000", "--port-base is for --runtime local or docker or ssh"),
    ("--target ./no-such.tgz", "no-such.tgz does not exist: give the archive, the distribution or the checkout"),
    ("--patch file", "file is damaged, or not an archive"),
    ("--target ./file --patch file", "file is damaged, or not an archive"),
    ("--target kafka-2.8", "'kafka-2.8': it is older than the oldest; there are kafka-3.9, kafka-4.0,"),
    ("--target kafka-5.0.1", "it is newer than the newest; there are kafka-3.9"),
    ("--target redpanda-24.1", "'redpanda-24.1': it is older than the oldest; there are redpanda-25.2,"),
    ("audit live --topic t --bootstrap-server h:1 --quick --spark-conf spark.x=1", "--quick reads no data"),
    (
        "audit disk --topic t --broker 1=x --spark-conf spark.hadoop.fs.s3a.secret.key=x",
        "--spark-conf spark.hadoop.fs.s3a.secret.key: other users of this host can read the command line",
    ),
    ("--nemesis split", "--nemesis split: a minority of one is what --nemesis partition makes: give --absent 2"),
    ("--nemesis split --brokers 4 --absent 2", "2 of 4 brokers are not a minority"),
    ("--nemesis bridge --brokers 4", "give --brokers 5 or more"),
    ("--nemesis bridge --brokers 5 --absent 2 --partitions 3", "give --partitions 2 or fewer"),
    ("--nemesis ring --brokers 5", "give --brokers 5 --absent 2, say"),
    ("--nemesis ring --brokers 5 --absent 2 --partitions 2", "give --partitions 1"),
    ("--nemesis controller-kill", "give --brokers 4 or more"),
    ("--nemesis relay --brokers 4", "a replica has to be on broker 4, too: give --replication-factor 4"),
    ("--nemesis relay --replication-factor 2", "on broker 3, too: give --replication-factor 3"),
    ("--nemesis relay --absent 2", "two leaders have to stay: give --absent 1"),
    ("--target redpanda-25.3 --replication-factor 2", "--replication-factor 2: Redpanda takes odd numbers only"),
    ("--target redpanda-25.3 --brokers 5 --absent 2", "with 3 replicas of a partition no majority is left"),
    ("--target redpanda-25.3 --nemesis join", "put through it; choose kill, lossy, none, one-way"),
    ("--target redpanda-25.3 --nemesis controller-kill", "Redpanda cannot be put through it"),
    ("--target sim-kafka --nemesis disk-full", "simulated Kafka cannot be put through it"),
    ("--target sim-kafka --runtime docker", "--runtime docker: sim-kafka does not run there; choose sim"),
    ("--target sim-kafka --keep", "--keep is for --runtime local or docker or ssh, and contradicts --target sim"),
    ("--target sim-kafka --image some", "--image is for --runtime docker, and contradicts --target sim-kafka"),
    ("--target sim-kafka --set broker.num.io.threads=1", "simulated brokers know no such setting"),
    ("--target kafka-4.4 --runtime sim", "--runtime sim: kafka-4.4 does not run there; choose local"),
    (f"--target {TANSU} --anomaly stuck-lso", "tansu supports 1 (supports.brokers)"),
    (f"--target {TANSU} --anomaly served --gate", "--gate is for Kafka's brokers only"),
    (f"--target {TANSU} --anomaly served --runtime docker", "does not run there; choose local"),
    ("--anomaly served --nemesis pause", "--nemesis pause"),
    ("--anomaly served --guard", "--guard"),
    ("--anomaly served --application streams", "--application"),
    ("--anomaly served --absent 2", "--absent 2 contradicts --anomaly served"),
    ("--anomaly served --replication-factor 5", "--replication-factor 5: give 3 at most"),
    (f"--target {TANSU} --anomaly served --brokers 5", "--brokers 5: tansu supports 1"),
    ("--set topic.min.cleanable.dirty.ratio=0.0_1", "takes a finite number"),
    ("audit live --bootstrap-server h:1 --save s --spool-limit 1GiB", "leave out --spool-limit"),
    ("audit key --topic t --key k --broker 1=empty --rate-limit-mb 1", "reads copies: leave out --rate-limit-mb"),
    ("--anomaly served,stuck-lso", "a run of its own"),
    ("--anomaly served --timers days", "--timers days: runs of --anomaly served do not put clocks forward"),
    ("--gate --guard", "--gate and --guard"),
    (
        "audit live --bootstrap-server h:1 --topic a,b",
        "'a,b' is not a topic: give each topic with a separate option: --topic a --topic b",
    ),
    ("nightly --resume empty --results elsewhere", "leave out --results"),
    ("gate verify file --target kafka-4.4", "file is not a jar"),
    ("conform --target kafka-3.9 --transactions 2", "--transactions 2: kafka-3.9 has no transactions of version 2"),
    ("conform --target sim-kafka", "--target sim-kafka is not a Kafka"),
    ("explore --target sim-redpanda --with gate", "--with: unknown proposal for sim-redpanda"),
    ("explore --target sim-kafak", "unknown simulated target 'sim-kafak'; did you mean sim-kafka"),
    ("explore --target sim-kafka --with coordinate", "for sim-kafka 'coordinate'; did you mean coordinated"),
    ("explore --target sim-kafka --with coordinated --without never-backwards", "did you mean never-backward"),
    ("explore --target sim-kafka --with coordinated --without snapshot-first", "unknown rule 'snapshot-first'"),
    ("explore --target sim-kafka --with gate --without never-backward", "it is one of --with coordinat"),
    ("explore --target sim-redpanda --without markers-ages", "'markers-ages'; did you mean markers-age"),
    ("explore --target sim-kafka --with isr-gate --with gate", "--with gate: it is not modelled under faults"),
    ("explore --target sim-kafka --with isr-gate --with coordinated", "give only one of them under faults"),
    ("explore --target sim-kafka --with isr-gate --with anew-after-loss", "isr-gate has this rule"),
    ("explore --target sim-kafka --with isr-gate --without image-aged", "did you mean image-age"),
    ("explore --target sim-kafka --faults --without image-age", "unknown rule 'image-age'"),
    ("explore --target sim-kafka --faults --groups", "--faults: leave out --groups"),
    ("explore --target sim-kafka --groups --with isr-gate", "leave out --with isr-gate"),
    ("explore --target sim-redpanda --groups", "leave out --target sim-redpanda"),
    ("nightly --targets kafka-3.9 --runtimes ssh", "--runtime ssh needs hosts"),
    ("nightly --targets redpanda-25.2", "--runtime local: redpanda-25.2 does not run there; choose docker"),
    ("nightly", "the matrix names no targets"),
    ("--target kafka-39", "'--target': unknown target 'kafka-39'; did you mean kafka-3.9"),
    ("--target redpanda", "sim-redpanda); an exact patch is kafka-"),
    ("doctor --fetch kafka-3", "'kafka-3'; did you mean kafka-4.3 or kafka-3.9? (known: kafka-3.9, kafka-4.0,"),
    ("--client jav", "'jav'; did you mean java"),
    ("--anomaly stuk-lso", "'stuk-lso'; did you mean stuck-lso"),
    ("--nemesis kil", "'kil'; did you mean kill"),
    ("--timers fats", "'fats'; did you mean fast"),
    ("--nemsis kill", "'--nemsis'. (Did you mean one of: '--nemesis'"),
    ("--set nonsense", "'nonsense': give topic.NAME=VALUE"),
    ("run --target kafka-3.9", "give --anomaly"),
    ("run --anomaly all", "give --target: see `harness targets`"),
    ("run --seed 5", "give --target and --anomaly: see"),
    ("run --schedule s.json", "'--schedule': 's.json' is not a file"),
    ("run --resume nowhere", "'--resume': 'nowhere' is not a folder"),
    ("clean 2026-01-01T00-00-00Z-0000", "nothing is left of 2026-01-01T00-00-00Z-0000"),
    ("check", "RUN_DIR"),
    ("chek", "'chek'"),
    ("nightly --targets sim-kafka --anomalies stuck-lso --junit /proc/x/y", "/proc/x/y cannot be written"),
    ("explore --target sim-kafka --out /proc/x", "/proc/x cannot be written"),
])  # fmt: skip
def test_contradictions(capsys: pytest.CaptureFixture[str], arguments: str, expected: str) -> None:
    of_a_run = ["run", "--target", "kafka-3.9", "--anomaly", "all"] if arguments.startswith("--") else []
    assert expected in str(answer(capsys, *of_a_run, *shlex.split(arguments)))
    assert not Path("results").exists()


@pytest.mark.parametrize(("servers", "expected"), [
    ("h:0", "'0' is not a port; give a port from 1 to 65535"),
    ("h:65536", "'65536' is not a port"),
    ("h", "'h' is not an address: give host:port"),
    ("h:9092,", "'' is not an address"),
    ("http://h:9092", "'http://h:9092' is a URL: give host:port"),
    ("::1:9092", "an IPv6 address in brackets: [::1]:9092"),
    ("[::g]:9092", "::g is not an IPv6 address"),
    ("kafka-1..example:9092", "kafka-1..example is not a host name"),
    ("h h:9092", "'h h:9092' is not an address"),
])  # fmt: skip
@pytest.mark.parametrize("command", ["live", "exposure"])
def test_bootstrap_servers(capsys: pytest.CaptureFixture[str], command: str, servers: str, expected: str) -> None:
    output = str(answer(capsys, "audit", command, "--topic", "t", "--bootstrap-server", servers))
    assert expected in output
    assert "--bootstrap-server" in output


@pytest.mark.parametrize("servers", ["h:1", "[::1]:9092", "127.0.0.1:9092,b.example:1", "größe:9092"])
def test_bootstrap_servers_that_are_asked(capsys: pytest.CaptureFixture[str], servers: str) -> None:
    assert answer(capsys, "audit", "live", "--topic", "t", "--bootstrap-server", servers) is None


def test_the_table_of_a_run_has_every_option_but_those_of_output() -> None:
    """Options outside the table only choose output files and formats."""
    of_run = {str(p.name) for p in COMMANDS["run",].params}
    output = {"results", "run_dir", "keep", "output", "verbose", "quiet", "help"}
    elsewhere = {"port_base", "spark_master", "spark_conf", *output}
    assert {str(option.name) for option in OPTIONS} == of_run - elsewhere
    assert command_line(RunOptions("kafka-3.9", "all")).startswith("harness run --target kafka-3.9 --anomaly all ")
