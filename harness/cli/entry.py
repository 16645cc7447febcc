"""The console script ``harness``: Ctrl-C ends it while its modules are still imported, which takes a second."""

import os
import signal
from typing import NoReturn

from harness.errors import EXIT_INTERRUPTED


def main() -> NoReturn:
    """Run the command line. Until it has its own handlers, SIGINT and SIGTERM end the process at once."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(EXIT_INTERRUPTED))
    from harness.cli.main import main as run  # noqa: PLC0415  (the slow import)

    run()
