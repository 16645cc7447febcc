"""Which audits need compiled loops, and who compiles them."""

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.audit.judge_copies import WORTH_REDUCING_BYTES, is_big
from harness.spark.background import start_compilation


@pytest.mark.parametrize(("size_bytes", "expected"), [(WORTH_REDUCING_BYTES - 1, False), (WORTH_REDUCING_BYTES, True)])
def test_what_is_worth_reducing(tmp_path: Path, size_bytes: int, *, expected: bool) -> None:
    log = tmp_path / "0.log"
    log.touch()
    os.truncate(log, size_bytes)
    copies: Any = SimpleNamespace(replicas=[SimpleNamespace(logs=[log], stored={})])
    assert is_big([copies]) == expected
    # Judged whole, 60 MB took minutes of processor time.
    assert WORTH_REDUCING_BYTES <= 8 << 20


def test_loops_are_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: started.append(command[-1]))
    start_compilation()
    assert started == ["harness.spark.background"]
    (tmp_path / "segments_1").mkdir()
    (tmp_path / "segments_1" / "fields.walk_headers-28.py311.nbi").touch()
    start_compilation()
    assert len(started) == 1
