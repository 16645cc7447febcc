"""Arguments of the audit commands: one clear sentence for each unusable argument."""

import json

import click
import pytest
from click.testing import CliRunner
from fakes.brokers import TP, FakeBroker, Held, audited
from fakes.progress import FakeProgress

from harness.audit.explain.show import replica_table
from harness.audit.live import compare as live
from harness.audit.live.prefilter import Prefiltered, prefilter
from harness.audit.live.request import AuditRequest
from harness.cli.audit import audit, show, size_bytes, time_ms
from harness.console import JSON, TEXT
from harness.errors import EXIT_ANOMALY, EXIT_UNKNOWN, UsageError
from harness.json_codec import to_json
from harness.judge.verdict import Verdict
from harness.kafka_api.transactions import OpenTransaction

LIVE = ("live", "--topic", "t", "--bootstrap-server", "127.0.0.1:1")


@pytest.mark.parametrize(("arguments", "expected"), [
    ((*LIVE,), "no broker answers"),
    ((*LIVE, "--quick"), "no broker answers"),
    (("exposure", *LIVE[1:]), "no broker answers"),
    ((*LIVE, "--quick", "--since", "2026-01-01"), "--quick reads no data: leave out"),
    ((*LIVE, "--output", "/proc/a.json"), "/proc/a.json cannot be written: No such file or directory"),
    ((*LIVE, "--junit", "/nowhere/a.xml"), "/nowhere/a.xml cannot be written: No such file or directory"),
    ((*LIVE, "--spool-limit", "4"), "'--spool-limit': '4': give a size such as 4GiB or 500MB"),
    ((*LIVE, "--since", "yesterday"), "'--since': 'yesterday': give a time such as 2026-01-31T12:00Z"),
    ((*LIVE, "--since", "2026-01-02", "--until", "2026-01-01"), "--since 2026-01-02 is not before"),
    ((*LIVE, "--command-config", "/nowhere.properties"), "/nowhere.properties"),
    ((*LIVE, "--save", "/proc/nowhere"), "--save /proc/nowhere: No such file or directory"),
    ((*LIVE, "--save", "/proc"), "--save /proc: the folder is not empty"),
])  # fmt: skip
def test_what_cannot_be_used_is_reported_in_one_sentence(arguments: tuple[str, ...], expected: str) -> None:
    ended = CliRunner().invoke(audit, arguments, standalone_mode=False)
    assert isinstance(ended.exception, (UsageError, click.UsageError)), ended
    assert ended.stdout == ""
    error = ended.exception
    assert expected in (error.format_message() if isinstance(error, click.UsageError) else str(error))


@pytest.mark.parametrize(("text", "expected_ms"), [
    ("1700000000123", 1_700_000_000_123),
    ("2023-11-14T22:13:20Z", 1_700_000_000_000),
    ("2023-11-14T22:13:20", 1_700_000_000_000),
    ("2023-11-14T23:13:20.5+01:00", 1_700_000_000_500),
    ("2023-11-14", 1_699_920_000_000),
    ("1969-12-31T23:59:59.999Z", 0),
])  # fmt: skip
def test_times(text: str, expected_ms: int) -> None:
    assert time_ms(text) == expected_ms


@pytest.mark.parametrize(("text", "expected"), [("1MB", 1_000_000), ("4GiB", 1 << 32), ("2TB", 2 * 10**12)])
def test_sizes(text: str, expected: int) -> None:
    assert size_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "GiB", "0MB", "-1MB", "1.5GB", "1KB", "1 MB", "9999999TiB"])
def test_other_sizes_are_rejected(text: str) -> None:
    with pytest.raises(UsageError, match="give a size such as 4GiB"):
        size_bytes(text)


def audit_quickly(monkeypatch: pytest.MonkeyPatch, second: Held) -> tuple[Verdict, Prefiltered]:
    """Audit two brokers, of which the first has no open transaction."""
    cluster = audited({1: FakeBroker({TP: [Held(3, 3)]}), 2: FakeBroker({TP: [second]})})
    filtered = prefilter(cluster)
    monkeypatch.setattr(live, "describe", lambda *_: cluster)
    monkeypatch.setattr(live, "prefilter", lambda *_: filtered)
    return live.audit_quickly(AuditRequest([], ["t"]), FakeProgress())


def test_what_brokers_say_is_a_finding_with_advice(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result, actual = audit_quickly(monkeypatch, Held(3, 0, open=(OpenTransaction(7, 0, 0),)))
    content = to_json(result)
    (printed,) = content["findings"]
    assert [printed[name] for name in ("anomaly", "broker", "offset", "producer_id")] == ["stuck-lso", 2, 0, 7]
    assert "no other replica can be proven correct" in printed["do"]
    assert not any("reassign" in command for command in printed["commands"])
    assert show(result, JSON) == EXIT_ANOMALY
    assert json.loads(capsys.readouterr().out) == content
    assert show(result, TEXT) == EXIT_ANOMALY
    printed_text = capsys.readouterr().out
    assert "ANOMALY      stuck-lso: t-0: broker 2 is wrong\n  Impact now " in printed_text
    assert "  Evidence   broker 2, t-0, offset 0: " in printed_text
    assert len(replica_table(actual.statuses).rows) == 2


def test_nothing_suspicious_is_unknown_until_data_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    actual, _ = audit_quickly(monkeypatch, Held(3, 3))
    assert (actual.verdict, actual.reason) == ("unknown", "t-0: no replica was read")
    assert live.NOT_READ in (actual.notes or ())
    assert show(actual, JSON) == EXIT_UNKNOWN
