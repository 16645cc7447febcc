"""A marker that the coordinator leaves out: the brokers' log messages, which soaks use, and consumers."""

import pytest
import skipped_marker
from click.testing import CliRunner

from harness.errors import EXIT_ANOMALY, EXIT_CLEAN


@pytest.mark.parametrize(
    ("given", "code", "skipped", "served"),
    [
        (["--version", "4.4.0", "--abort"], EXIT_ANOMALY, 1, "committed: second; delivered: first, second"),
        (["--version", "4.4.0"], EXIT_ANOMALY, 1, "committed: first; delivered: nothing"),
        (["--version", "3.9.2", "--abort"], EXIT_CLEAN, 0, "committed: second; delivered: second"),
    ],
)
def test_the_next_marker_ends_a_transaction_whose_own_was_left_out(
    given: list[str], code: int, skipped: int, served: str
) -> None:
    ran = CliRunner().invoke(skipped_marker.main, given)
    assert f"skipped {skipped} markers; {served}" in ran.output, ran.output
    assert ran.exit_code == code
