"""An audit's page, the files of an audit, and the site that lists audits."""

import json
import re
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from click.testing import CliRunner
from fakes.brokers import TP, FakeBroker, Held, audited
from fakes.progress import FakeProgress
from pages import HOSTILE
from test_audit_summary import audit, finding, partition

from harness.audit.live import compare as live
from harness.audit.live.request import AuditRequest
from harness.cli.audit import AuditFiles
from harness.cli.main import cli
from harness.errors import EXIT_CLEAN, EXIT_INTERRUPTED, HarnessError, UsageError
from harness.judge.verdict import Verdict
from harness.report import audits
from harness.report.audits import audit_page
from harness.report.site import write_site
from harness.spark.options import SparkOptions

ID = "audit-2026-11-28T05-06-07Z-beef"


def diverged() -> Verdict:
    gone = partition(1, "unknown", reason="gone", causes=("not-read",))
    scenarios = (partition(0, "anomaly", reason="frozen at 0"), gone, partition(2))
    wrong = finding(
        impact="broker 2 leads", witness={"high_watermark_here": 69, "key": HOSTILE}, means="readers stop",
        do="rebuild the replica", commands=("BOOTSTRAP=h:1", "kafka-configs.sh --alter"),
    )  # fmt: skip
    return replace(audit(*scenarios, findings=(wrong,), notes=(HOSTILE,)), run_id=ID)


def test_a_page_shows_all_and_needs_no_network() -> None:
    page = audit_page(diverged(), "a.json", "--bootstrap-server h:1")
    for text in (
        "1 of 3 partitions diverged, 1 undecided, 1 agrees", "stuck-lso: orders-0: broker 2 is wrong",
        "<dt>Impact now</dt><dd>broker 2 leads</dd>", "not-read: orders-1", "&#34;high_watermark_here&#34;: 69",
        "BOOTSTRAP=h:1\nkafka-configs.sh --alter", "harness repair a.json --bootstrap-server h:1 --plan",
        "2026-11-28 05:06:07 UTC", "ask 1.2, read 2.0", '<th scope="row">orders-1</th>',
    ):  # fmt: skip
        assert text in page
    assert '<th scope="row">orders-2</th>' not in page
    assert "<script>alert" not in page
    assert not re.search(r"""(src|href)=["'](?!#|data:|https://github.com/)|url\(|@import""", page)


def test_a_page_has_a_bounded_number_of_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audits, "PAGE_LIMITS", {"most": 2, "most_partitions": 2})
    many = audit(*(partition(n, "anomaly") for n in range(5)), findings=tuple(finding(n) for n in range(5)))
    page = audit_page(many, "a.json")
    assert page.count('<div class="finding">') == 2
    assert "The other 3 findings are in verdict.json." in page
    assert "The other 3 partitions are in verdict.json." in page


def test_a_clean_audit_has_a_page() -> None:
    page = audit_page(replace(audit(partition(0)), verdict="clean"), "a.json")
    assert "✓ clean</span>: 0 of 1 partition diverged, 1 agrees" in page
    assert "Every replica was read, and all of them agree." in page


def test_the_site_lists_audits_and_repair_reads_what_is_stored(tmp_path: Path) -> None:
    results, out = tmp_path / "results", tmp_path / "site"
    files = AuditFiles(html=tmp_path / "a.html", junit=tmp_path / "a.xml", results=results)
    files.check()
    stored = results / "audits" / ID / "verdict.json"
    assert files.write(diverged(), "--bootstrap-server h:1") == str(stored)
    assert f"harness repair {stored} --bootstrap-server h:1 --plan" in (tmp_path / "a.html").read_text()
    assert "orders-1" in (tmp_path / "a.xml").read_text()
    (results / "audits" / "damaged").mkdir()
    (results / "audits" / "damaged" / "verdict.json").write_text("[]")
    site = write_site(results, out, lambda _: None)
    assert (len(site.audits), len(site.left_out)) == (1, 1)
    index = (out / "index.html").read_text()
    assert f'<a href="audits/{ID}.html">2026-11-28 05:06:07 UTC</a>: 1 of 3 partitions diverged' in index
    assert '<a href="../index.html">All runs</a>' in (out / "audits" / f"{ID}.html").read_text()
    assert CliRunner().invoke(cli, ["report", "--results", str(results), "--out", str(out)]).exit_code == EXIT_CLEAN
    ended = CliRunner().invoke(cli, ["check", str(stored.parent)], standalone_mode=False)
    assert "it has no manifest.json; give a run folder" in str(ended.exception)


@pytest.mark.parametrize("name", ["file", "junit", "html", "results"])
def test_what_cannot_be_written_is_reported_before_anything_is_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"file/a.* cannot be written"):
        AuditFiles(**{name: tmp_path / "file" / "a"}).check()


def test_a_full_disk_is_reported_with_the_file() -> None:
    with pytest.raises(HarnessError, match="a file of the verdict: No space left"):
        AuditFiles(file=Path("/dev/full")).write(audit(), "")


def test_interrupts_in_the_first_wave_keep_what_brokers_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cluster = audited({1: FakeBroker({TP: [Held(3, 3)]}), 2: FakeBroker({TP: [Held(3, 3)]})})

    monkeypatch.setattr(live, "describe", lambda *_: cluster)
    monkeypatch.setattr(live, "spool", Mock(side_effect=KeyboardInterrupt))
    monkeypatch.setattr(live, "start_compilation", lambda: None)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(live.InterruptedAudit) as raised:
        live.audit_live(AuditRequest([], ["t"]), FakeProgress(), SparkOptions())
    (scenario,) = raised.value.verdict.scenarios
    assert (scenario.verdict, scenario.causes) == ("unknown", ("interrupted", "not-comparable"))

    monkeypatch.setattr(live, "audit_live", Mock(side_effect=raised.value))
    options = ["--output", "a.json", "--junit", "a.xml", "--html", "a.html"]
    arguments = ["audit", "live", "--topic", "t", "--bootstrap-server", "h:1", *options]
    ended = CliRunner().invoke(cli, arguments, standalone_mode=False)
    assert getattr(ended.exception, "exit_code", None) == EXIT_INTERRUPTED
    assert "UNKNOWN      interrupted, not-comparable: t-0" in ended.stdout
    assert f"(exit code {EXIT_INTERRUPTED})" in ended.stdout
    assert json.loads(Path("a.json").read_text())["verdict"] == "unknown"
    assert all("t-0" in Path(name).read_text() for name in ("a.xml", "a.html"))
