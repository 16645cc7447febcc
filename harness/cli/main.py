"""The command line. Progress goes to stderr, results to stdout, and every error is one clear sentence."""

import io
import logging
import shutil
import signal
import sys
import traceback
from types import FrameType
from typing import Final, NoReturn

import click
import cloup

from harness import DISTRIBUTION
from harness.cli import audit_key  # noqa: F401  (a command of `audit`)
from harness.cli.audit import audit
from harness.cli.config_file import default_map, read_config_file
from harness.cli.develop import conform, explore
from harness.cli.machine import LISTS, clean, doctor, images
from harness.cli.nightly import nightly
from harness.cli.options.common import summary
from harness.cli.protect import gate, guard
from harness.cli.repair import repair
from harness.cli.results import check, compare, report, serve
from harness.cli.run import run
from harness.cli.soak import soak
from harness.cli.watch import watch
from harness.errors import EXIT_CLEAN, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, HarnessError
from harness.escape import LogFormatter, visible
from harness.terminal import stderr

WIDTH: Final = min(shutil.get_terminal_size((100, 24)).columns, 110)
"""Columns of help texts; 100 in a pipe."""


@cloup.group(context_settings={"help_option_names": ["-h", "--help"], "terminal_width": WIDTH}, align_sections=False)
@click.version_option(package_name=DISTRIBUTION, prog_name="harness")
@cloup.option("--debug", is_flag=True, expose_value=False, help="Show tracebacks.")
@click.pass_context
def cli(context: click.Context) -> None:
    """Do the replicas of a compacted topic still agree after a broker was down?

    Options that stay the same may be kept in harness.toml: see `harness settings`.

    Exit codes: 0 clean, 1 anomaly, 2 unknown, 130 interrupted, 254 usage or set-up error, 255 failed.
    """
    context.default_map = default_map(cli, read_config_file())


SECTIONS: Final = (
    cloup.Section("Audit", [audit, watch]),
    cloup.Section("Protect and repair", [guard, gate, repair]),
    cloup.Section("Test versions", [run, soak, nightly, *LISTS, images, doctor, clean]),
    cloup.Section("Results", [check, compare, report, serve]),
    cloup.Section("Develop", [explore, conform]),
)
for section in SECTIONS:
    cli.add_section(section)
    for command in section.commands.values():
        # Otherwise Click cuts the summaries of groups.
        command.short_help = summary(command.help)


def main() -> NoReturn:
    """Run the command line and exit with its exit code."""
    interrupts = _interrupts()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A character that the locale cannot encode must not end the command.
            stream.reconfigure(errors="backslashreplace")
    debug = "--debug" in sys.argv[1:]
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    _log_to_stderr(debug=debug)
    try:
        code = cli.main(arguments, prog_name="harness", standalone_mode=False)
        if interrupts:  # a server took it for its end, or it was raised where Python cannot pass it on
            code = _fail("interrupted", EXIT_INTERRUPTED, debug=debug)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())  # noqa: TID251  (the help is our own)
        code = EXIT_USAGE
    except click.ClickException as error:
        code = _fail(error.format_message(), EXIT_USAGE, debug=debug)
    except HarnessError as error:
        code = _fail(str(error), error.exit_code, debug=debug)
    except (KeyboardInterrupt, click.Abort):
        code = _fail("interrupted; the command has no result", EXIT_INTERRUPTED, debug=debug)
    except SystemExit:  # Click exits with 1 at a closed pipe, and 1 is the code of an anomaly
        code = EXIT_FAILED
    except Exception as error:  # noqa: BLE001  (the last resort: one sentence instead of a traceback)
        code = _fail(f"{_first_line(error)} (--debug shows where)", EXIT_FAILED, debug=debug)
    sys.exit(code if isinstance(code, int) else EXIT_CLEAN)


def _first_line(error: Exception) -> str:
    """Return an exception in one line. Spark's exceptions ask their JVM for a text, and it may have ended."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  (as above)
        text = "Spark failed"
    return f"{type(error).__name__}: {text.partition(chr(10))[0]}"


def _interrupts() -> list[int]:
    """Let SIGINT and SIGTERM raise KeyboardInterrupt, and return the list to which they are added."""
    interrupts: list[int] = []

    def interrupt(number: int, _frame: FrameType | None) -> NoReturn:
        interrupts.append(number)
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, interrupt)
    return interrupts


def _fail(message: str, code: int, *, debug: bool) -> int:
    if code == EXIT_USAGE:
        message = visible(message)  # one sentence, whatever the argument contains
    if debug:
        stderr().message(traceback.format_exc())
    stderr().message(f"harness: {message}")
    return code


def _log_to_stderr(*, debug: bool) -> None:
    """Show the harness's own warnings as sentences; other people's, and tracebacks, only with --debug.

    Without any handler, py4j would print the tracebacks of connections that end with a JVM. Python's own warnings are
    logged, too, because they quote text from files and brokers.
    """
    logging.captureWarnings(capture=True)
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(LogFormatter("harness: %(message)s"))
    if not debug:
        handler.addFilter(lambda record: record.name == "harness" and not record.exc_info)
    logging.getLogger().addHandler(handler)


if __name__ == "__main__":
    main()
