"""The notebook of `examples/` runs from its first cell to its last, and shows what its text says."""

import os
import sys
from pathlib import Path
from typing import Final

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

NOTEBOOK: Final = Path(__file__).resolve().parents[2] / "examples" / "kafka-segments.ipynb"
CELL_S: Final = 180

pytestmark = pytest.mark.timeout(5 * CELL_S)


def outputs(notebook: NotebookNode) -> str:
    found = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return "\n".join(output.get("text", "") for output in found)


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=CELL_S, kernel_name="python3", resources=resources).execute()
    shown = outputs(notebook)
    assert "tombstone-divergence | decided: False" in shown
    assert "tombstone-divergence | decided: True | broker 2\ndeleted key K is back" in shown
    assert "|K  |[{2, {0, false" in shown, "the differing key"


def test_it_is_stored_without_outputs() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    assert outputs(notebook) == ""
