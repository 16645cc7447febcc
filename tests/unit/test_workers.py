"""The process that forks Spark's Python workers."""

import subprocess
import sys


def test_workers_do_without_pandas_and_know_how_to_read() -> None:
    code = (
        "import sys, checkers.workers, pyarrow; pyarrow.array(['a list']); "
        "print('pandas' in sys.modules, 'checkers.evidence.parse' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
