"""The duration of a site over many stored runs: ``harness report``, the whole process.

    python bench/report_site.py --run results/kafka-4.4/all/latest --runs 1000

Stores a run's folder so many times, each with its own id and page, as the harness leaves them, and times the command;
next to it, copying the same pages alone.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from harness.run_folder.store import MANIFEST, REPORT, VERDICT


def store(run: Path, results: Path, count: int) -> list[Path]:
    """Store a run under so many ids, an hour from each to the next, its files linked; return the folders."""
    target, anomaly = run.parts[-3:-1]
    first = datetime(2026, 1, 1, tzinfo=UTC)
    folders = []
    for number in range(count):
        run_id = f"{first + timedelta(hours=number):%Y-%m-%dT%H-%M-%SZ}-{number:04x}"
        folder = results / target / anomaly / run_id
        shutil.copytree(run, folder, copy_function=lambda source, at: Path(at).hardlink_to(source))
        for name in (MANIFEST, VERDICT):
            content = json.loads((run / name).read_text()) | {"run_id": run_id}
            (folder / name).unlink()
            (folder / name).write_text(json.dumps(content))
        folders.append(folder)
    return folders


@click.command()
@click.option("--run", type=click.Path(path_type=Path, exists=True), required=True, help="A run folder with a page.")
@click.option("--runs", type=click.IntRange(1), default=1000, show_default=True)
def main(run: Path, runs: int) -> None:
    """Time the site, and copying its pages."""
    run = run.resolve()
    with tempfile.TemporaryDirectory(dir=run.parents[2]) as name:
        top = Path(name)
        folders = store(run, top / "results", runs)
        started_s = time.monotonic()
        for folder in folders:
            (top / "copies" / folder.name).mkdir(parents=True)
            shutil.copyfile(folder / REPORT, top / "copies" / folder.name / REPORT)
        copied_s = time.monotonic() - started_s
        started_s = time.monotonic()
        command = [sys.executable, "-m", "harness.cli.main", "report", "--results", str(top / "results")]
        subprocess.run([*command, "--out", str(top / "site")], check=True)
        took_s = time.monotonic() - started_s
        print(f"{runs} runs: {took_s:.1f} s, {took_s / copied_s:.1f} times as long as copying their pages")


if __name__ == "__main__":
    main()
