"""A local stand-in for ``kafkatest.services.kafka``: what `compaction_replicas_test` uses, with the same names."""

import os
import re
import subprocess
from functools import partial
from pathlib import Path
from types import SimpleNamespace

from ducktape.services.service import Service
from ducktape.utils.util import wait_until

quorum = SimpleNamespace(combined_kraft="COMBINED_KRAFT")


class KafkaService(Service):
    """Three combined nodes as processes of this host, of the Kafka in ``KAFKA_HOME``."""

    DATA_LOG_DIR_1 = "/mnt/kafka/kafka-data-logs-1"

    def __init__(self, context, num_nodes, zk, topics, server_prop_overrides):
        """Take what Kafka's own service takes of these."""
        super().__init__(context, num_nodes)
        self.topics, self.overrides = topics, server_prop_overrides
        self.path = SimpleNamespace(script=lambda name, _node: f"{os.environ['KAFKA_HOME']}/bin/{name}")
        self.port = int(os.environ.get("PORT", "19190"))
        self.processes = {}

    def bootstrap_servers(self):
        """Return the addresses of all brokers."""
        return ",".join(f"localhost:{self.port + self.idx(node)}" for node in self.nodes)

    def start(self, **kwargs):
        """Format and start all nodes, and create the topics."""
        script = self.path.script("kafka-storage.sh", None)
        for node in self.nodes:
            node.account.ssh("mkdir -p /mnt/kafka")
            node.account.write("/mnt/kafka/kafka.properties", self._properties(self.idx(node)))
            node.account.ssh(
                f"{script} format -t AAAAAAAAAAAAAAAAAAAAAQ -c {node.account.real('/mnt/kafka/kafka.properties')}"
            )
            self.start_node(node)
        for name, topic in self.topics.items():
            configs = " ".join(f"--config {key}={value}" for key, value in topic["configs"].items())
            words = f"--topic {name} --replica-assignment {topic['replica-assignment']} {configs}"
            create = partial(self._topics, f"--create --if-not-exists {words}")
            wait_until(lambda create=create: create().returncode == 0, timeout_sec=60, err_msg="No topic was created")

    def start_node(self, node, **kwargs):
        """Start a broker."""
        start = [self.path.script("kafka-server-start.sh", node), node.account.real("/mnt/kafka/kafka.properties")]
        with Path(node.account.real("/mnt/kafka/server.log")).open("ab") as log:
            self.processes[node] = subprocess.Popen(start, stdout=log, stderr=log)

    def stop_node(self, node, clean_shutdown=True, **kwargs):
        """Stop a broker; without ``clean_shutdown`` by SIGKILL."""
        process = self.processes.pop(node, None)
        if process is not None:
            process.terminate() if clean_shutdown else process.kill()
            process.wait(60)

    def clean_node(self, node, **kwargs):
        """Remove what the node has written."""
        node.account.ssh("rm -rf /mnt/kafka")

    def isr_idx_list(self, topic, partition=0):
        """Return the ids of the brokers in the ISR."""
        output = self._topics(f"--describe --topic {topic}").stdout
        match = re.search(rf"Partition: {partition}\t.*Isr: ([\d,]+)", output)
        return [int(one) for one in match[1].split(",")] if match else []

    def _topics(self, words):
        script = self.path.script("kafka-topics.sh", None)
        command = f"{script} --bootstrap-server {self.bootstrap_servers()} {words}"
        return subprocess.run(command, shell=True, check=False, text=True, capture_output=True)

    def _properties(self, number):
        voters = ",".join(f"{n}@localhost:{self.port + 3 + n}" for n in (1, 2, 3))
        settings = {
            "process.roles": "broker,controller",
            "node.id": number,
            "listeners": f"PLAINTEXT://localhost:{self.port + number},CONTROLLER://localhost:{self.port + 3 + number}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": voters,
            "log.dirs": self.nodes[number - 1].account.real(self.DATA_LOG_DIR_1),
            **dict(self.overrides),
        }
        return "".join(f"{key}={value}\n" for key, value in settings.items())
