"""A transaction is open again after a kill, although the cleaner had removed it with its marker."""

import recovered_transaction
from click.testing import CliRunner

from harness.errors import EXIT_ANOMALY


def test_a_broker_that_recovers_opens_a_transaction_again() -> None:
    ran = CliRunner().invoke(recovered_transaction.main, ["--version", "4.4.0"])
    assert ran.exit_code == EXIT_ANOMALY, ran.output
    before, after, served = ran.output.splitlines()
    stable, high = (int(one.split()[-1]) for one in before.removeprefix("before: ").split(","))
    assert stable == high
    assert after == f"after: last stable offset 2, high watermark {high}"
    assert served == "a read_committed consumer gets: first segment"
