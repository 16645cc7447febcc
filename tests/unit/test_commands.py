"""Commands of the host: bounded, and reported in their own words."""

from __future__ import annotations

import pytest

from harness.errors import HarnessError
from harness.host import commands


def test_what_it_prints_is_returned() -> None:
    assert commands.run("sh", "-c", "echo $WORD; echo warned >&2", variables={"WORD": "printed"}) == "printed\n"
    assert commands.run("sh", "-c", "echo version >&2") == "version\n", "as java does"


def test_it_fails_with_its_own_words() -> None:
    with pytest.raises(HarnessError, match=r"`sh -c .*`: the network overlaps$"):
        commands.run("sh", "-c", "echo 'the network'; echo 'the network overlaps' >&2; exit 1")


def test_it_fails_without_words() -> None:
    with pytest.raises(HarnessError, match=r"exit code 3$"):
        commands.run("sh", "-c", "exit 3")


def test_one_that_does_not_end_is_ended() -> None:
    with pytest.raises(HarnessError, match=r"timed out after 0.1 seconds"):
        commands.run("sleep", "60", timeout_s=0.1)


def test_one_that_is_not_there() -> None:
    assert commands.find("no-such-command") is None
    with pytest.raises(HarnessError, match=r"no-such-command"):
        commands.run("no-such-command")
