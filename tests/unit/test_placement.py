"""Placement of replicas: every absent broker has a replica of each partition, and leads none."""

from itertools import combinations
from typing import Any

import pytest

from harness.errors import UsageError
from harness.schedules.placement import Placement, place


def shape(**changes: Any) -> Placement:
    return place(**{"brokers": 3, "replication_factor": 3, "partitions": 1, "absent": 1, **changes})


def test_three_brokers_are_the_published_layout() -> None:
    assert shape() == Placement()
    assert shape().replicas(0) == (1, 3, 2)
    assert shape().replicas(0, control=True) == (1, 3)


@pytest.mark.parametrize("brokers", range(3, 8))
@pytest.mark.parametrize("partitions", [1, 4])
def test_every_shape_keeps_the_rules(brokers: int, partitions: int) -> None:
    for absent, factor in combinations(range(1, brokers + 1), 2):
        subject = shape(brokers=brokers, replication_factor=factor, partitions=partitions, absent=absent)
        assert subject.brokers == tuple(range(1, brokers + 1))
        assert len(subject.absent) == absent
        for partition in range(partitions):
            replicas = subject.replicas(partition)
            assert len(set(replicas)) == len(replicas) == factor
            assert replicas[0] in subject.staying
            assert set(subject.absent) <= set(replicas) <= set(subject.brokers)
            assert set(subject.replicas(partition, control=True)) <= set(subject.staying)


def test_leaders_are_spread() -> None:
    subject = shape(brokers=5, partitions=4)
    assert [subject.replicas(p)[0] for p in range(4)] == [1, 3, 4, 5]


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ({"brokers": 2}, "--brokers 2: give 3 to 7"),
        ({"brokers": 8}, "--brokers 8: give 3 to 7"),
        ({"partitions": 0}, "--partitions 0"),
        ({"replication_factor": 1}, "--replication-factor 1: give 2 to 3"),
        ({"replication_factor": 4}, "--replication-factor 4: give 2 to 3"),
        ({"absent": 0}, "--absent 0: give 1 to 2"),
        ({"absent": 3}, "--absent 3: give 1 to 2"),
        ({"replication_factor": 2, "absent": 2}, "--absent 2: give 1 to 1"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(numbers: dict[str, int], expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        shape(**numbers)
