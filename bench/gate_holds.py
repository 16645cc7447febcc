"""The cost of a held partition: all compaction waits, only tombstones and markers wait, or nothing waits.

A broker's own log, cleaner and metadata cache of 4.4 in one JVM, without a broker (``bench/gate_java``): every key is
updated in each of many rounds while the image shows a replica out of the ISR; then the replica is back.

    python bench/gate_holds.py --keys 100000 --rounds 100
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "unit"))

from java_cases import agent, classpath_of, compile_java, run_java  # noqa: E402  (from the tests)

TARGET: Final = "kafka-4.4"
SOURCES: Final = (ROOT / "bench/gate_java/HeldLog.java", ROOT / "tests/unit/gate_cases/BrokerLog.java")
HOLDS: Final = {"nothing": "except=orders", "tombstones and markers": "hold=markers", "all compaction": "hold=all"}
QUIET: Final = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
HEADER: Final = ("held", "span", "log MB", "most MB", "passes", "read MB", "written MB", "cleaning s")


def main() -> int:
    """Measure, print a table, return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--value-bytes", type=int, default=100)
    asked = parser.parse_args()
    # An entry of the offset map takes 24 bytes, and the map may be 90 % full.
    sizes = (f"-Dkeys={asked.keys}", f"-Drounds={asked.rounds}", f"-Dvalue={asked.value_bytes}")
    flags = (*sizes, f"-Dmap={max(1 << 20, asked.keys * 24 * 4)}", "-Xmx1g", QUIET)
    with tempfile.TemporaryDirectory() as scratch:
        classes = Path(scratch) / "classes"
        compile_java(classes, *SOURCES, libraries=classpath_of(TARGET))
        print("\t".join(HEADER))
        for name, options in HOLDS.items():
            with tempfile.TemporaryDirectory(dir=scratch) as folder:
                done = run_java(
                    "compaction.gate.HeldLog",
                    os.pathsep.join([str(classes), classpath_of(TARGET)]),
                    flags=(agent().flag(options), f"-Dfolder={folder}", *flags),
                )
            if done.returncode != 0:
                print(done.stderr, file=sys.stderr)
                return 1
            for line in done.stdout.splitlines():
                span, log, most, passes, read, written, seconds = line.split("\t")
                shown = [f"{int(one) / 1e6:.1f}" for one in (log, most)]
                work = [passes, f"{int(read) / 1e6:.1f}", f"{int(written) / 1e6:.1f}", f"{float(seconds):.1f}"]
                print("\t".join([name, span, *shown, *work]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
