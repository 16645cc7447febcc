"""Members of the cluster: brokers that a controller hears and that hear the controller."""

from __future__ import annotations

from harness.runtimes.namespaces import Reach

BROKERS = (1, 2, 3, 4)


def within(reach: Reach) -> list[int]:
    return [broker for broker in BROKERS if reach.has(broker)]


def test_a_broker_that_is_cut_off_is_not_even_if_it_is_the_controller() -> None:
    reach = Reach([1])
    reach.cut.add(1)
    reach.cut.add(2)
    assert within(reach) == [3, 4]
    reach.cut.remove(1)
    assert within(reach) == [1, 3, 4]


def test_one_direction_is_not_enough() -> None:
    reach = Reach([1])
    reach.blocked.update([(2, 1)])
    reach.blocked.update([(1, 3)])
    assert within(reach) == [1, 4]


def test_any_controller_will_do() -> None:
    reach = Reach([1, 3])
    reach.blocked.update([(2, 1), (1, 2)])
    assert within(reach) == [1, 2, 3, 4]
    reach.blocked.update([(2, 3)])
    assert within(reach) == [1, 3, 4]


def test_links_among_others_do_not_count() -> None:
    reach = Reach([1])
    reach.blocked.update([(2, 3), (3, 2), (4, 2)])
    assert within(reach) == [1, 2, 3, 4]


def test_everybody_is_within_reach_once_links_are_cleared() -> None:
    reach = Reach([1])
    reach.blocked.update([(2, 1)])
    reach.blocked.clear()
    assert within(reach) == [1, 2, 3, 4]
