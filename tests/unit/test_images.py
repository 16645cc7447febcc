"""Which image a target gets, and the message where there is none."""

from collections.abc import Iterable
from typing import Any

import pytest
from fakes.containers import FakeEngine, FakeImages

from harness.errors import UsageError
from harness.targets import find_target, images

TARGET = find_target("kafka-3.9")
OFFICIAL = f"apache/kafka:{TARGET.version}"
BUILT = f"compaction-harness/kafka:{TARGET.version}"


def client(references: Iterable[str], registry: Iterable[str] = ()) -> Any:
    return FakeEngine(images=FakeImages(references, registry))


@pytest.mark.parametrize(("references", "requested", "expected"), [
    ([OFFICIAL, BUILT], None, OFFICIAL),
    ([BUILT], None, BUILT),
    ([], None, None),
    ([OFFICIAL, "mine:1"], "mine:1", "mine:1"),
    ([OFFICIAL], "mine:1", None),
])  # fmt: skip
def test_a_local_image_is_found(references: list[str], requested: str | None, expected: str | None) -> None:
    image = images.find(client(references), TARGET, requested)
    assert (image.reference if image else None) == expected
    assert image is None or image.digests == (f"{expected}@sha256:1",)
    assert images.obtain(client([], [OFFICIAL]), TARGET).reference == OFFICIAL, "it is pulled if there is none"


@pytest.mark.parametrize("requested", [None, "mine:1"])
def test_a_failed_pull_and_an_invalid_reference_are_reported(requested: str | None) -> None:
    with pytest.raises(UsageError) as refused:
        images.obtain(client([]), TARGET, requested)
    assert f"{requested or OFFICIAL} cannot be pulled (dial tcp: lookup failed)" in str(refused.value)
    assert "`harness images build kafka-3.9`" in str(refused.value)
    with pytest.raises(UsageError, match="--image 'UPPER:1': the container engine refuses it: invalid ref"):
        images.find(client([OFFICIAL]), TARGET, "UPPER:1")
