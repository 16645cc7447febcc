"""Clusters whose clients log in over SASL or TLS, and users that may do exactly what a page lists.

Brokers talk to each other, and tests to them, on an inner listener: nobody logs in there, and that nobody may do
everything.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509.oid import NameOID
from kafka.protocol.admin import CreateAclsRequest
from local_cluster import local_cluster, start_brokers
from sandbox import wait_until

from harness.broker_files.segments.batches import Batch, iter_batches
from harness.broker_files.segments.encode import encode_batch
from harness.broker_files.segments.records import Record
from harness.clients.librdkafka import CONFIG
from harness.errors import HarnessError
from harness.kafka_api import TopicPartition, client_requests, fetch, messages
from harness.kafka_api.address import Address
from harness.kafka_api.admin import Admin
from harness.kafka_api.connection import Connection, ask
from harness.kafka_api.security import read_security
from harness.runtimes.local import LocalRuntime
from harness.schedules.timers import FAST

BOUND_S, STORE_SECRET, BROKER = 60.0, "the-password-of-the-store", "broker"
BROKERS = (1, 2, 3)
AUTHORIZED = {
    **FAST.broker,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
RESOURCES = {"topic": 2, "group": 3, "cluster": 4, "transactional-id": 5}
OPERATIONS = {
    "Read": 3, "Write": 4, "Create": 5, "Delete": 6, "Alter": 7, "Describe": 8, "ClusterAction": 9,
    "DescribeConfigs": 10, "AlterConfigs": 11,
}  # fmt: skip
LITERAL, PREFIXED, ALLOW = 3, 4, 3
SCRAM = ("SCRAM-SHA-512", "org.apache.kafka.common.security.scram.ScramLoginModule")
PLAIN = ("PLAIN", "org.apache.kafka.common.security.plain.PlainLoginModule")


@dataclass(frozen=True)
class Secured:
    """A running cluster; ``inside``: where nobody may do everything. ``login``: the properties file of the user."""

    runtime: LocalRuntime
    admin: Admin
    inside: list[Address]
    login: Path

    @property
    def server(self) -> tuple[str, ...]:
        """The options of a command that comes as the user."""
        addresses = ",".join(str(self.runtime.address(broker)) for broker in BROKERS)
        return ("--bootstrap-server", addresses, "--command-config", str(self.login))

    def allow(self, user: str, rights: Iterable[tuple[str, str, str]], pattern: int = LITERAL) -> None:
        """Allow a user the listed operations: type of the resource, its name, operation."""
        creations = [
            {"resource_type": RESOURCES[kind], "resource_name": name, "resource_pattern_type": pattern,
             "principal": f"User:{user}", "host": "*", "operation": OPERATIONS[operation], "permission_type": ALLOW}
            for kind, name, operation in rights
        ]  # fmt: skip
        creating = messages.request(
            CreateAclsRequest, 3, lambda answer: [one.error_code for one in answer.results], creations=creations
        )
        assert ask(self.inside[0], creating) == [0] * len(creations)

    def is_whole(self, *topics: str) -> bool:
        try:
            states = self.admin.partitions(topics)
        except HarnessError:
            return False
        return bool(states) and {frozenset(state.isr) for state in states.values()} == {frozenset(BROKERS)}

    def create(self, places: Mapping[TopicPartition, tuple[int, ...]], settings: Mapping[str, str]) -> None:
        self.admin.create_topics(places, settings)
        wait_until(lambda: self.is_whole(*{topic for topic, _ in places}), BOUND_S, "the topics to be whole")


@contextmanager
def booted(target: str, folder: Path, login: Path, settings: Mapping[str, str]) -> Iterator[Secured]:
    """Boot a cluster that asks clients for this login and holds them to ACLs, and end it."""
    with local_cluster(target, folder, {**AUTHORIZED, **settings}, security=read_security(login)) as cluster:
        yield Secured(*start_brokers(cluster), login)


def login_file(folder: Path, user: str, secret: str, login: tuple[str, str] = PLAIN, *, is_tls: bool = False) -> Path:
    """Write a client's properties file. With TLS it trusts the authority of `make_stores`."""
    mechanism, module = login
    path = folder / "client.properties"
    path.write_text(
        f"security.protocol={'SASL_SSL' if is_tls else 'SASL_PLAINTEXT'}\nsasl.mechanism={mechanism}\n"
        f'sasl.jaas.config={module} required username="{user}" password="{secret}";\n'
        + (f"ssl.truststore.type=PEM\nssl.truststore.location={folder / 'ca.pem'}\n" if is_tls else "")
    )
    return path


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def certificate(owner: str, key: ec.EllipticCurvePrivateKey, authority: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    """Return the certificate of a key, issued by the authority of `make_stores`."""
    name, issuer = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)]) for text in (owner, BROKER))
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=owner == BROKER, path_length=None), critical=True)
        .sign(authority, SHA256())
    )


def make_stores(folder: Path, key: ec.EllipticCurvePrivateKey | None = None) -> dict[str, str]:
    """Write the brokers' key, which is the authority that clients trust, too; return the settings that brokers need."""
    key = key or new_key()
    own = certificate(BROKER, key, key)
    (folder / "ca.pem").write_bytes(own.public_bytes(Encoding.PEM))
    protection = BestAvailableEncryption(STORE_SECRET.encode())
    (folder / "broker.p12").write_bytes(serialize_key_and_certificates(BROKER.encode(), key, own, None, protection))
    return {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(folder / "broker.p12"),
        "ssl.keystore.password": STORE_SECRET,
    }


def batches_of(broker: Address, partition: TopicPartition) -> list[Batch]:
    """Return the batches that a broker serves of a small partition."""
    with closing(fetch.WireReader(Connection(broker))) as reader:
        state = reader.read([partition])[partition]
    assert isinstance(state, fetch.ReplicaState), state
    return list(iter_batches(state.records, source="a Fetch answer"))


def hang(admin: Admin, brokers: Sequence[Address], partition: TopicPartition) -> None:
    """Commit a transaction, then have its leader take one more batch of it (brokers 1, 2, …, as before KIP-890)."""
    security = brokers[0].security
    login = {} if security is None else security.for_librdkafka()
    settings = {"bootstrap.servers": ",".join(map(str, brokers)), "transactional.id": "late"}
    producer = Producer({**CONFIG, **login, **settings})
    producer.init_transactions(BOUND_S)
    producer.begin_transaction()
    producer.produce(partition[0], key="k", value="in time", partition=partition[1])
    producer.commit_transaction(BOUND_S)
    leader = brokers[admin.partitions([partition[0]])[partition].leader - 1]
    wait_until(lambda: len(batches_of(leader, partition)) == 2, BOUND_S, "the COMMIT marker")
    first = batches_of(leader, partition)[0]
    of_producer: Any = {"producer_id": first.producer_id, "producer_epoch": first.producer_epoch, "base_sequence": 1}
    record = Record(0, first.max_timestamp_ms, b"k", b"too late", ())
    late = encode_batch(base_offset=0, records=[record], is_transactional=True, **of_producer)
    ask(leader, client_requests.produce(partition, late, "late"))
