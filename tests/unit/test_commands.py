"""Commands of the host: bounded, and reported in their own words."""

import pytest

from harness.errors import HarnessError
from harness.host import commands


def test_the_output_of_a_command_is_returned() -> None:
    assert commands.run("sh", "-c", "echo $WORD; echo warned >&2", variables={"WORD": "printed"}) == "printed\n"
    assert commands.run("sh", "-c", "echo version >&2") == "version\n", "as java does"


@pytest.mark.parametrize(("script", "message"), [
    ("echo 'the network'; echo 'the network overlaps' >&2; exit 1", r"`sh -c .*`: the network overlaps$"),
    ("exit 3", r"exit code 3$"),
])  # fmt: skip
def test_a_failed_command_is_reported_with_the_reason(script: str, message: str) -> None:
    with pytest.raises(HarnessError, match=message):
        commands.run("sh", "-c", script)


def test_a_command_is_ended_after_its_time_limit() -> None:
    with pytest.raises(HarnessError, match=r"timed out after 0.1 seconds"):
        commands.run("sleep", "60", timeout_s=0.1)


def test_a_missing_command_is_an_error() -> None:
    assert commands.find("no-such-command") is None
    with pytest.raises(HarnessError, match=r"no-such-command"):
        commands.run("no-such-command")
