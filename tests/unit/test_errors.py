"""Errors that are raised again with a description."""

import errno

import pytest

from harness.errors import HarnessError, UsageError, raised_as


@pytest.mark.parametrize(("error", "reason"), [
    (ValueError("not a number"), "not a number"),
    (OSError(errno.ENOSPC, "No space left on device", "/a/file"), "No space left on device"),
    (ConnectionError("the broker closed the connection"), "the broker closed the connection"),
    (EOFError(), "EOFError"),
])  # fmt: skip
def test_the_message_has_the_description_and_the_reason(error: Exception, reason: str) -> None:
    with pytest.raises(UsageError) as raised, raised_as(UsageError, "a file", ValueError, OSError, EOFError):
        raise error
    assert str(raised.value) == f"a file: {reason}"
    assert raised.value.__cause__ is error


def test_other_errors_pass() -> None:
    with pytest.raises(HarnessError, match="as it was"), raised_as(UsageError, "a file", OSError):
        raise HarnessError("as it was")
