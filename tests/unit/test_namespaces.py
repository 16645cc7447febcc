"""Networks of namespaces on a fake host: creation, removal, and the messages of failures."""

import os
import re
import socket
from ipaddress import IPv4Network
from pathlib import Path
from unittest.mock import Mock

import pytest
from fakes.host import FakeHost

from harness.errors import HarnessError, UsageError
from harness.host import commands, network
from harness.host.network import create_network, free_subnet, remove_network, why_impossible
from harness.runtimes.namespaces import Reach

RUN = "2026-01-02T03-04-05Z-abcd"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    subject = FakeHost(tmp_path)
    monkeypatch.setattr(network, "NAMESPACES", tmp_path)
    monkeypatch.setattr(commands, "run", subject.run)
    monkeypatch.setattr(commands, "find", {"ip": "ip"}.get)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(socket, "if_nameindex", lambda: list(enumerate(sorted(subject.links))))
    return subject


def test_every_broker_has_a_namespace_an_address_and_a_link(host: FakeHost) -> None:
    subject = create_network(RUN, (1, 2, 3, 4, 5, 6, 7))
    links, namespaces = host.state
    assert namespaces == {f"ch-{RUN}-{broker}" for broker in subject.brokers}
    assert len(links) == 8
    assert all(len(link) <= 15 for link in links)
    assert subject.prefix(3) == ["ip", "netns", "exec", f"ch-{RUN}-3"]
    addresses = {broker: subject.address(broker) for broker in subject.brokers}
    assert len(set(addresses.values())) == 7
    for broker, address in addresses.items():
        in_namespace = ["link set lo up", f"address add {address}/24 dev eth0"]
        assert {f"ip -n ch-{RUN}-{broker} {command}" for command in in_namespace} <= set(host.commands)


def test_a_cut_concerns_the_link_of_the_broker(host: FakeHost) -> None:
    subject = create_network(RUN, (1, 2, 3))
    subject.cut(2)
    subject.heal(2)
    (link,) = (link for link in host.links if link.endswith("-2"))
    assert host.commands[-2:] == [f"ip link set {link} down", f"ip link set {link} up"]


def test_a_network_is_removed_by_its_run_id(host: FakeHost) -> None:
    for run_id, brokers in ((RUN, (1, 2, 3, 4, 5)), ("a", (1,)), ("a-1", (1,))):
        create_network(run_id, brokers)
    assert remove_network(RUN) == 5
    assert len(host.state[0]) == 4
    done = len(host.commands)
    assert remove_network(RUN) == 0
    assert len(host.commands) == done, "no command where there is nothing"
    assert remove_network("a") == 1
    assert host.state[1] == {"ch-a-1-1"}
    assert remove_network("a-1") == 1
    assert host.state == (set(), set())


@pytest.mark.parametrize("refused", ["type bridge", "address add", "netns add ch-run-2", "type veth", "lo up"])
def test_an_incomplete_network_is_removed_after_a_failure_and_an_interruption(host: FakeHost, refused: str) -> None:
    host.refused = refused
    words = "`ip .*`: Operation not permitted"
    failure, interruption = (UsageError, f"no network of namespaces can be made: {words}"), (KeyboardInterrupt, words)
    for host.error, (raised, says) in ((HarnessError, failure), (KeyboardInterrupt, interruption)):
        with pytest.raises(raised, match=says):
            create_network("run", (1, 2, 3))
        assert host.state == (set(), set())


def test_an_existing_network_is_not_changed(host: FakeHost) -> None:
    create_network(RUN, (1, 2, 3))
    before = host.state
    with pytest.raises(UsageError, match=f"run {RUN} has a network already; .*harness clean {RUN}"):
        create_network(RUN, (1, 2, 3))
    assert host.state == before


def test_an_incomplete_network_is_removed_and_all_that_can_be_where_it_fails(host: FakeHost) -> None:
    create_network("run", (1, 2, 3))
    host.links = {"lo", "eth0"}
    (host.namespaces / "ch-run-2").unlink()
    assert remove_network("run") == 2
    assert host.state == (set(), set())
    create_network("run", (1, 2, 3))
    host.refused = "netns delete ch-run-2"
    with pytest.raises(HarnessError, match="netns delete ch-run-2`: Operation not permitted"):
        remove_network("run")
    assert host.state == (set(), {"ch-run-2"})


def test_a_concurrent_removal_is_no_error(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    create_network("run", (1, 2, 3))

    def run(*command: str) -> str:
        host.run(*command)
        if command[1] == "link":
            raise HarnessError("Cannot find device")
        return ""

    monkeypatch.setattr(commands, "run", run)
    assert remove_network("run") == 3


def test_a_rule_without_a_bridge_is_removed(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = [f"-A FORWARD -i {bridge} -o {bridge} -j ACCEPT" for bridge in ("chdeadbeef", "chcafecafe", "docker0")]
    run = Mock(return_value="\n".join(rules))
    host.links.add("chcafecafe")
    monkeypatch.setattr(commands, "find", lambda command: f"/usr/sbin/{command}")
    monkeypatch.setattr(commands, "run", run)
    network.remove_stray_rules()
    assert [" ".join(call.args[2:]) for call in run.call_args_list] == [
        "-S FORWARD", "-D FORWARD -i chdeadbeef -o chdeadbeef -j ACCEPT",
    ]  # fmt: skip


@pytest.mark.parametrize("refused", ["nothing", "iptables"])
def test_iptables_has_a_rule_for_the_bridge_and_is_ignored_where_it_fails(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    monkeypatch.setattr(commands, "find", {"ip": "ip", "iptables": "iptables"}.get)
    host.refused = refused
    create_network("run", (1,))
    (bridge,) = (link for link in host.links - {"lo", "eth0"} if not link.endswith("-1"))
    assert [remove_network("run"), remove_network("run")] == [1, 0]
    rule = f"FORWARD -i {bridge} -o {bridge} -j ACCEPT"
    rules = [command for command in host.commands if command.startswith("iptables")]
    assert rules == [f"iptables -w -I {rule}", f"iptables -w -D {rule}"]


def test_a_subnet_depends_on_the_run_id_and_on_routes_but_not_on_halves_of_a_default_route() -> None:
    subnet = free_subnet(RUN, [])
    halves = [IPv4Network("0.0.0.0/1"), IPv4Network("128.0.0.0/1")]
    assert subnet == free_subnet(RUN, []) == free_subnet(RUN, halves) != free_subnet("other", [])
    assert subnet.prefixlen == 24
    assert subnet.subnet_of(IPv4Network("10.0.0.0/8"))
    blocks = [IPv4Network("10.0.0.0/8"), IPv4Network("172.16.0.0/12")]
    assert free_subnet(RUN, blocks[:1]).subnet_of(blocks[1])
    with pytest.raises(UsageError, match=r"10.0.0.0/8 and 172.16.0.0/12: no subnet is free"):
        free_subnet(RUN, blocks)


@pytest.mark.parametrize("change", [0, 8, -4], ids=["same", "within", "around"])
def test_a_subnet_does_not_overlap_with_routes_of_the_host(host: FakeHost, change: int) -> None:
    wished = free_subnet(RUN, [])
    taken = next(wished.subnets(change)) if change >= 0 else wished.supernet(-change)
    following = wished[0] + 256 + 7
    host.routes += [{"dst": str(taken)}, {"type": "blackhole", "dst": str(following)}]
    subnet = create_network(RUN, (1,)).subnet
    assert not subnet.overlaps(taken)
    assert following not in subnet
    assert subnet.subnet_of(IPv4Network("10.0.0.0/8"))


def test_a_possible_network_has_no_reason_and_its_probe_is_removed(host: FakeHost) -> None:
    assert why_impossible() is None
    assert host.state == (set(), set())
    assert any(command.endswith(" true") for command in host.commands)


@pytest.mark.parametrize("refused", ["type bridge", "netns add", "netns exec"])
def test_the_reason_has_the_message_of_the_kernel(host: FakeHost, refused: str) -> None:
    host.refused = refused
    assert re.search(f"{refused}.*Operation not permitted$", why_impossible() or "")
    assert host.state == (set(), set())


@pytest.mark.parametrize(("user", "reason"), [(1000, "root"), (0, "apt-get install iproute2")], ids=["root", "ip"])
def test_without_root_or_the_ip_command_nothing_is_created_or_removed(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch, user: int, reason: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(commands, "find", {}.get if user == 0 else {"ip": "ip"}.get)
    assert reason in str(why_impossible())
    assert remove_network(RUN) == 0
    assert host.commands == []


@pytest.mark.parametrize(
    ("controllers", "cut", "blocked", "members"),
    [
        ([1], {1, 2}, set(), [3, 4]),
        ([1], {2}, set(), [1, 3, 4]),
        ([1], set(), {(2, 1), (1, 3)}, [1, 4]),
        ([1, 3], set(), {(2, 1), (1, 2)}, [1, 2, 3, 4]),
        ([1, 3], set(), {(2, 1), (1, 2), (2, 3)}, [1, 3, 4]),
        ([1], set(), {(2, 3), (3, 2), (4, 2)}, [1, 2, 3, 4]),
    ],
    ids=["cut, even the controller", "one is cut", "one direction", "another controller", "no controller", "others"],
)
def test_members_exchange_packets_with_a_controller(
    controllers: list[int], cut: set[int], blocked: set[tuple[int, int]], members: list[int]
) -> None:
    reach = Reach(controllers, (1, 2, 3, 4), cut=cut, blocked=blocked)
    assert [broker for broker in (1, 2, 3, 4) if reach.is_up(broker)] == members
