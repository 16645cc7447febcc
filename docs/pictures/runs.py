"""Draw the timelines of a stored run as pictures of the pages: one SVG a payload.

    python docs/pictures/runs.py results/kafka-4.4/all/latest docs/explanation/pictures

These are the timelines of the run's own report, of partition 0 of each topic.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from harness.report.pictures.story import read_story
from harness.report.pictures.timeline import timeline
from harness.run_folder.store import RunFolder
from harness.schedules.catalog import SCENARIOS

STYLE: Final = "<style>svg{color:#1b1f24}@media(prefers-color-scheme:dark){svg{color:#e6edf3}}</style>"
"""Text has the colour of the page in a report; a picture of a page has to choose one."""


def main(run_dir: Path, folder: Path) -> None:
    """Write a picture for each scenario of the run."""
    story = read_story(RunFolder(run_dir))
    for scenario in SCENARIOS:
        if (scenario.name, 0) in story.replicas:
            svg = timeline(story, scenario.name, 0)
            head = svg.index(">") + 1
            (folder / f"run-{scenario.name}.svg").write_text(f"{svg[:head]}{STYLE}{svg[head:]}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
