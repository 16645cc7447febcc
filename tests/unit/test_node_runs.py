"""The end of a run on other hosts, some of which do not answer."""

import json
from pathlib import Path
from unittest.mock import Mock

import pytest

from harness.errors import UsageError
from harness.host import node_runs
from harness.host.leftovers import NODES_FILE
from harness.host.nodes import Access, Node
from harness.json_codec import to_json

NODES = tuple(Node(f"n{number}", 22, "u") for number in (1, 2, 3))


def test_a_node_that_cannot_be_reached_is_no_reason_to_leave_brokers_on_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / NODES_FILE).write_text(json.dumps(to_json(Access(NODES))))
    ended: list[str] = []

    def log_in(node: Node, _access: Access) -> Mock:
        if node.host == "n1":
            raise UsageError("login to u@n1:22 failed: no route to host")

        def run_script(script: str) -> str:
            ended.extend([node.host] if "kill -KILL" in script else [])
            return ""

        connection = Mock()
        connection.shell.side_effect = run_script
        return connection

    monkeypatch.setattr(node_runs, "NodeConnection", log_in)
    with pytest.raises(UsageError, match="no route to host"):
        node_runs.remove(tmp_path, "run")
    assert sorted(ended) == ["n2", "n3"]
