"""The daemon that forks Spark's Python workers: it imports the modules that all workers need, once.

It blocks the import of pandas, which no worker needs: pyarrow imports pandas to test whether a list is a pandas series.
"""

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
