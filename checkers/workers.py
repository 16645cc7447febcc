"""What forks Spark's Python workers in a session of our own: what they all need is imported here, once.

And what none of them needs is not: pyarrow imports pandas, to ask of every list whether it is one of its series.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder


class _WithoutPandas(MetaPathFinder):
    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname == "pandas":
            raise ImportError


sys.meta_path.insert(0, _WithoutPandas())

from pyspark import daemon  # noqa: E402

import checkers.evidence.tables  # noqa: E402, F401

if __name__ == "__main__":
    daemon.manager()
