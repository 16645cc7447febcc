"""The command line as a whole: groups and examples of every command, completion, lists in JSON, one meaning a name."""

import json
import logging
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import cloup
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner
from findings import verdict
from test_documentation import parse
from test_nightly_night import plan_of

from harness import DISTRIBUTION
from harness.cli.main import SECTIONS, cli
from harness.cli.options.common import command as make_command
from harness.cli.options.common import summary
from harness.console import ConsoleProgress, show
from harness.judge.verdict import RunResult
from harness.nightly.ledger import Ledger
from harness.run_folder.store import RunFolder
from harness.terminal import stdout


def leaves(group: click.Group = cli, name: str = "") -> Iterator[tuple[str, cloup.Command | cloup.Group]]:
    for part, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from leaves(command, f"{name}{part} ")
        if not isinstance(command, click.Group) or command.invoke_without_command:
            assert isinstance(command, cloup.Command | cloup.Group)
            yield f"{name}{part}", command


LEAVES = dict(leaves())


def help_of(*words: str) -> str:
    """Return the help of a command in 100 columns, as in a pipe."""
    return CliRunner().invoke(cli, [*words, "--help"], terminal_width=100).stdout


@pytest.mark.parametrize("name", LEAVES)
def test_a_command_has_two_examples_that_can_be_parsed_and_a_help_of_one_screen(name: str) -> None:
    head, *examples = (LEAVES[name].epilog or "").split("\n  ")
    assert head == "\b\nExamples:"
    assert len(examples) >= 2
    for example in examples:
        words = shlex.split(example)
        assert " ".join(words).partition("harness ")[2].startswith(name)
        parse(words[words.index("harness") + 1 :])
    shown = help_of(*name.split())
    assert len(shown.splitlines()) <= 60
    assert [word for word in ("Sentinel", "INTEGER RANGE", "<=x<=") if word in shown] == []


def test_every_summary_is_shown_in_full_in_its_group() -> None:
    shown = " ".join(help_of().split())
    commands = [command for section in SECTIONS for command in section.commands.values()]
    assert sorted(command.name or "" for command in commands) == sorted(cli.commands)
    for command in commands:
        assert f"{command.name} {summary(command.help)}" in shown


def test_every_option_is_in_a_group_and_commands_share_no_group() -> None:
    groups = [id(group) for command in LEAVES.values() for group in command.option_groups]
    assert len(groups) == len(set(groups))
    for name, command in LEAVES.items():
        options = [each for each in command.params if isinstance(each, cloup.Option)]
        titles = {each.opts[0]: each.group and each.group.title for each in options}
        assert (None in titles.values(), "Output" in titles.values()) == (False, True), (name, titles)


def test_an_option_has_one_meaning_over_all_commands() -> None:
    options = [each for command in LEAVES.values() for each in command.params if isinstance(each, click.Option)]
    forms = {(each.opts[0], type(each.type), each.is_flag, each.multiple) for each in options}
    assert len(forms) == len({each.opts[0] for each in options}), sorted(map(str, forms))


@pytest.mark.parametrize(("words", "typed", "completed"), [
    (["run", "--target"], "kafka-4.", {"kafka-4.0", "kafka-4.1", "kafka-4.2", "kafka-4.3", "kafka-4.4"}),
    (["run", "--nemesis"], "c", {"catch-up", "clock-skew", "controller-kill", "crash-in-cleaning"}),
    (["run", "--anomaly"], "a", {"aborted-to-committed", "all"}),
    (["run", "--client"], "", {"librdkafka", "java"}),
    (["run", "--timers"], "d", {"days", "default"}),
    (["run", "--runtime"], "s", {"ssh", "sim"}),
    (["nightly", "--targets"], "kafka-3.9,sim-k", {f"kafka-3.9,sim-kafka{line}" for line in ("", "-3.9", "-4.3")}),
    (["explore", "--target"], "sim-r", {"sim-redpanda"}),
])  # fmt: skip
def test_the_shell_completes_names(words: list[str], typed: str, completed: set[str]) -> None:
    found = ShellComplete(cli, {}, "harness", "_HARNESS_COMPLETE").get_completions(words, typed)
    assert {one.value for one in found} == completed


def enveloped(words: list[str]) -> dict[str, Any]:
    """Return the content of a command's JSON, without the fields that every command adds."""
    content: dict[str, Any] = json.loads(CliRunner().invoke(cli, [*words, "--format", "json"]).stdout)
    assert list(content)[:3] == ["schema", "version", "time"]
    assert (content.pop("schema"), content.pop("version")) == (1, version(DISTRIBUTION))
    assert datetime.fromisoformat(content.pop("time")).tzinfo == UTC
    return content


@pytest.mark.parametrize("name", ["targets", "nemeses", "anomalies", "settings"])
def test_a_list_in_json_has_version_and_time(name: str) -> None:
    content = enveloped([name])
    assert list(content) == [name]
    assert len(content[name]) > 3


def test_explore_conform_and_a_night_in_json_have_the_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = enveloped(["explore", "--target", "sim-kafka", "--most-states", "10"])
    assert list(content) == ["verdict", "target", "cases"]
    monkeypatch.setattr("harness.model_checking.conform.conform.conform", lambda *_, **__: ([], "no broker"))
    assert enveloped(["conform", "--target", "kafka-4.4"]) == {
        "verdict": "unknown", "reason": "no broker", "target": {"name": "kafka-4.4"}, "schedules": [],
    }  # fmt: skip
    ledger = Ledger.create(tmp_path / "nightly" / "one", plan_of())
    monkeypatch.setattr("harness.host.leftovers.Owner.lives", lambda _: False)
    monkeypatch.setattr("harness.nightly.night.work", lambda *_, **__: None)
    content = enveloped(["nightly", "--resume", str(ledger.path)])
    assert content["statuses"] == {"not run": 1}
    assert content.items() <= json.loads((ledger.path / "summary.json").read_text()).items()


def test_settings_are_shown_with_their_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HARNESS_CONFIG", raising=False)
    monkeypatch.setenv("TMPDIR", "/scratch")
    (tmp_path / "harness.toml").write_text('[cluster]\ntopics = ["a", "b"]\n')
    shown = json.loads(CliRunner().invoke(cli, ["settings", "--format", "json"]).output)["settings"]
    found = {one["setting"]: (one["value"], one["from"]) for one in shown if one["value"]}
    assert found["cluster.topics"] == ("a b", str(tmp_path / "harness.toml"))
    assert found["TMPDIR"] == ("/scratch", "environment")


def test_a_kept_cluster_comes_with_the_command_to_audit_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    actual = verdict(command="harness run --target kafka-4.4 --command-config 'a b.properties' --keep")
    show(RunResult(RunFolder(tmp_path / "id"), actual, {1: "127.0.0.1:1", 2: "127.0.0.1:2"}), "text")
    shown = capsys.readouterr().err
    audit = "audit live --bootstrap-server 127.0.0.1:1,127.0.0.1:2 --topic '*' --command-config 'a b.properties'"
    assert f"audit it with: harness {audit}" in shown
    assert "remove it with: harness clean id" in shown


def test_quiet_prints_no_progress() -> None:
    @make_command("harness work", "harness work -q", formats=False)
    def work() -> int:
        ConsoleProgress().stage("work")
        stdout().line("result")
        return 0

    explore = ["explore", "--target", "sim-kafka", "--processes", "1", "--most-states", "10"]  # has its own progress
    for option, has_progress in (("-v", True), ("-q", False), ("--quiet", False)):
        done = CliRunner().invoke(work, [option])
        assert ("s  work" in done.stderr, done.stdout) == (has_progress, "result\n")
        done = CliRunner().invoke(cli, [*explore, option])
        assert ("states in" in done.stderr, "case" in done.stdout) == (has_progress, True)


def test_verbose_prints_what_is_logged() -> None:
    log, handler = logging.getLogger("harness"), logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    logging.getLogger().addHandler(handler)
    level = log.level
    try:
        CliRunner().invoke(cli, ["anomalies", "-v"])
        assert (log.level, handler.level) == (logging.DEBUG, logging.DEBUG)
    finally:
        logging.getLogger().removeHandler(handler)
        log.setLevel(level)
