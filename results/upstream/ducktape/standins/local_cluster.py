"""Nodes of ducktape that are folders of this host: no SSH, and ``/mnt`` of each node is a folder of its own."""

import os
import subprocess
from pathlib import Path

from ducktape.cluster.cluster_node import ClusterNode
from ducktape.cluster.linux_remoteaccount import LinuxRemoteAccount
from ducktape.cluster.localhost import LocalhostCluster
from ducktape.cluster.node_container import NodeContainer
from ducktape.cluster.remoteaccount import RemoteAccountSSHConfig


class LocalAccount(LinuxRemoteAccount):
    """Runs commands by a shell of this host. ``WORK`` in the environment is the folder of all nodes."""

    def real(self, path):
        """Return where a path of the node lies."""
        return path.replace("/mnt", f"{os.environ['WORK']}/{self.hostname}")

    def write(self, path, text):
        """Write a file of the node."""
        Path(self.real(path)).write_text(text)

    def ssh(self, cmd, allow_fail=False):
        """Run a command; return its exit code."""
        return subprocess.run(self.real(cmd), shell=True, check=not allow_fail, stdout=subprocess.DEVNULL).returncode

    def ssh_output(self, cmd, allow_fail=False, **kwargs):
        """Run a command; return what it prints."""
        return subprocess.run(self.real(cmd), shell=True, check=not allow_fail, stdout=subprocess.PIPE).stdout


class LocalCluster(LocalhostCluster):
    """Three such nodes."""

    def __init__(self, *args, **kwargs):
        """Make the nodes; nothing is connected."""
        super().__init__(num_nodes=0)
        self._available_nodes = NodeContainer()
        for number in (1, 2, 3):
            self._available_nodes.add_node(
                ClusterNode(LocalAccount(RemoteAccountSSHConfig(f"node{number}", hostname=f"node{number}", port=22)))
            )
