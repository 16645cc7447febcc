"""Brokers that ask for OAUTHBEARER, GSSAPI or a client's certificate: the commands that users run on their clusters."""

import json
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest
from confluent_kafka import Producer
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from local_cluster import local_cluster, start_brokers
from login_servers import AUDIENCE, ISSUER, REALM, kdc, oauth_server
from sandbox import Going, Ran, Sandbox, make_spark_home, wait_until
from secured import BOUND_S, BROKERS, PLAIN, SCRAM, STORE_SECRET, certificate, login_file, make_stores, new_key
from test_guard_service import Running
from test_watch import Watching

from harness.clients.librdkafka import CONFIG
from harness.errors import EXIT_ANOMALY, EXIT_CLEAN, EXIT_USAGE
from harness.kafka_api.security import Security, read_security

TOPIC = ("orders", 0)
EXPOSURE = ("audit", "exposure", "--topic", TOPIC[0])
CLIENT, SECRET = "auditor", "the-secret-of-the-auditor"
OAUTH = "org.apache.kafka.common.security.oauthbearer"
TOKEN_S, REAUTHENTICATION_S = 10, 6
EXECUTORS = "local-cluster[1,1,1024]"


@dataclass(frozen=True)
class BrokersLogin:
    """The brokers' side of a login that the harness does not configure by itself."""

    mechanism: str
    settings: Mapping[str, str]
    protocol: str = "SASL_PLAINTEXT"
    scram_user: None = field(default=None)

    def for_brokers(self, listener: str) -> dict[str, str]:
        prefix = f"listener.name.{listener.lower()}.{self.mechanism.lower()}"
        own = {f"{prefix}.{name}": value for name, value in self.settings.items()}
        return {"sasl.enabled.mechanisms": self.mechanism, **own}


@dataclass(frozen=True)
class Logins:
    """A running cluster with one compacted topic, and the properties file of its user."""

    sandbox: Sandbox
    bootstrap: str
    login: Path

    def start(self, *command: str) -> Going:
        return self.sandbox.start(*command, "--bootstrap-server", self.bootstrap, "--command-config", str(self.login))

    def call(self, *command: str, code: int = EXIT_CLEAN) -> Ran:
        return self.start(*command).end(code)

    def audit(self) -> Path:
        """Audit the topic, and return the verdict's path; it is clean."""
        self.call(*EXPOSURE)
        path = self.sandbox.root / "audit.json"
        self.call("audit", "live", "--topic", TOPIC[0], "--output", str(path))
        assert json.loads(path.read_text())["verdict"] == "clean"
        return path


@contextmanager
def running(
    sandbox: Sandbox, target: str, security: object, login: Path, settings: Mapping[str, str], *jvm_flags: str
) -> Iterator[Logins]:
    login_of_brokers = cast("Security", security)
    with local_cluster(target, sandbox.root, settings, security=login_of_brokers, jvm_flags=jvm_flags) as cluster:
        runtime, admin, inside = start_brokers(cluster)
        admin.create_topics({TOPIC: BROKERS}, {"cleanup.policy": "compact"})
        producer = Producer({**CONFIG, "bootstrap.servers": ",".join(map(str, inside))})
        for number in range(100):
            producer.produce(TOPIC[0], str(number), b"v", TOPIC[1])
        assert producer.flush(BOUND_S) == 0
        yield Logins(sandbox, ",".join(str(runtime.address(broker)) for broker in BROKERS), login)


def oauth_login(folder: Path, url: str, secret: str = SECRET) -> Path:
    path = folder / "client.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.oauthbearer.token.endpoint.url={url}/token\n"
        f'sasl.jaas.config={OAUTH}.OAuthBearerLoginModule required clientId="{CLIENT}" clientSecret="{secret}";\n'
    )
    return path


@pytest.mark.parametrize("target", ["kafka-3.9", "kafka-4.4"])
def test_tokens_of_an_oauth_server(sandbox: Sandbox, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", str(make_spark_home(sandbox)))
    with oauth_server((CLIENT, SECRET), TOKEN_S) as server:
        of_listener = {
            "sasl.jaas.config": f"{OAUTH}.OAuthBearerLoginModule required;",
            "sasl.server.callback.handler.class": f"{OAUTH}.OAuthBearerValidatorCallbackHandler",
            "connections.max.reauth.ms": str(REAUTHENTICATION_S * 1000),
        }
        settings = {
            "sasl.oauthbearer.jwks.endpoint.url": f"{server.url}/keys", "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.expected.audience": AUDIENCE, "sasl.oauthbearer.clock.skew.seconds": "1",
        }  # fmt: skip
        flag = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={server.url}/keys"
        login = oauth_login(sandbox.root, server.url)
        with running(sandbox, target, BrokersLogin("OAUTHBEARER", of_listener), login, settings, flag) as cluster:
            cluster.audit()
            cluster.call("audit", "live", "--topic", TOPIC[0], "--spark-master", EXECUTORS)
            guard(cluster, lambda: server.granted)
            watch(cluster)
            oauth_login(sandbox.root, server.url, "another secret")
            ran = cluster.call("audit", "exposure", code=EXIT_USAGE)
            assert f"{server.url}/token gives client {CLIENT} no token: HTTPError HTTP Error 401" in ran.stderr
            assert "another secret" not in ran.output


def guard(cluster: Logins, granted: Callable[[], int] | None = None) -> None:
    """Guard the topic until the guard leads, or for three tokens, whose sessions brokers end earlier."""
    path = cluster.sandbox.root / "events"
    guarding = Running(cluster.start("guard", "--topic", TOPIC[0], "--port", "0", "--events", str(path)), path)
    for kind in ("leads", "ready"):
        guarding.wait_for(kind)
    if granted is not None:
        enough = granted() + 3
        wait_until(lambda: granted() >= enough, BOUND_S, "three more tokens")
    assert guarding.events("failed") == []
    assert SECRET not in guarding.end(code=EXIT_CLEAN).output


def watch(cluster: Logins) -> None:
    """Watch until every partition was compared, the last ones with another connection than the first."""
    watching = Watching(cluster.sandbox, cluster.bootstrap, "--command-config", str(cluster.login))
    rows = watching.wait_for_comparisons(watching.wait_for_comparisons({}))
    assert {row["verdict"] for row in rows.values()} == {"clean"}
    watching.going.process.send_signal(signal.SIGTERM)
    assert SECRET not in watching.going.end(EXIT_CLEAN).output


@pytest.mark.needs("kdc")
def test_tickets_of_kerberos(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    with kdc(sandbox.root) as realm:
        service = f"kafka/127.0.0.1@{REALM}"
        keytab, own_keytab = realm.keytab(service), realm.keytab(CLIENT)
        for name, value in realm.variables.items():
            monkeypatch.setenv(name, value)
        module = "com.sun.security.auth.module.Krb5LoginModule required"
        keys = f'useKeyTab=true storeKey=true serviceName="kafka" keyTab="{keytab}" principal="{service}"'
        security = BrokersLogin("GSSAPI", {"sasl.jaas.config": f"{module} {keys};"})
        login = sandbox.root / "client.properties"
        jaas = f'sasl.jaas.config={module} useTicketCache=true principal="{CLIENT}@{REALM}";\n'
        mechanism = "sasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"
        login.write_text(f"security.protocol=SASL_PLAINTEXT\n{mechanism}{jaas}")
        flag = f"-Djava.security.krb5.conf={realm.folder}/krb5.conf"
        with running(sandbox, "kafka-4.4", security, login, {}, flag) as cluster:
            ran = cluster.call(*EXPOSURE, code=EXIT_USAGE)
            assert "no valid Kerberos ticket: run kinit" in ran.stderr
            realm.call("kinit", "-k", "-t", str(own_keytab), CLIENT)
            audit = cluster.audit()
            cluster.call("repair", str(audit), "--plan")
            cluster.call("guard", "--topic", TOPIC[0], "--dry-run")
            watch(cluster)
            ran = cluster.call("guard", "--topic", TOPIC[0], "--port", "0", code=EXIT_USAGE)
            assert "librdkafka, whose wheels have no GSSAPI" in ran.stderr
            ran = cluster.call("audit", "live", "--spark-master", EXECUTORS, code=EXIT_USAGE)
            assert "executors cannot log in, because a Kerberos ticket" in ran.stderr
            # Tickets of a keytab, without kinit.
            realm.call("kdestroy")
            monkeypatch.setenv("KRB5_CLIENT_KTNAME", str(own_keytab))
            cluster.call(*EXPOSURE)
            login.write_text(login.read_text().replace(CLIENT, "another"))
            ran = cluster.call(*EXPOSURE, code=EXIT_USAGE)
            assert f"the Kerberos ticket is of {CLIENT}@{REALM}, and sasl.jaas.config names another@" in ran.stderr


def test_certificates_of_clients(sandbox: Sandbox) -> None:
    folder = sandbox.root
    authority = new_key()
    settings = {
        **make_stores(folder, authority), "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"), "listener.name.client.ssl.client.auth": "required",
    }  # fmt: skip
    key = new_key()
    encrypted = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(SECRET.encode()))
    chain = certificate(CLIENT, key, authority).public_bytes(Encoding.PEM)
    (folder / "own.pem").write_bytes(encrypted + chain)
    login = folder / "client.properties"
    trust = f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={folder}/ca.pem\n"
    own = f"ssl.keystore.type=PEM\nssl.keystore.location={folder}/own.pem\nssl.key.password={SECRET}\n"
    login.write_text(trust + own)
    with running(sandbox, "kafka-4.4", read_security(login), login, settings) as cluster:
        audit = cluster.audit()
        cluster.call("repair", str(audit), "--plan")
        guard(cluster)
        watch(cluster)
        login.write_text(trust)
        ran = cluster.call(*EXPOSURE, code=EXIT_USAGE)
        assert "certificate" in ran.stderr


@pytest.mark.parametrize(
    ("target", "client", "login"),
    [("kafka-3.9", "librdkafka", SCRAM), ("kafka-4.4", "java", PLAIN)],
    ids=["SCRAM, librdkafka", "PLAIN, java"],
)
def test_clients_log_in_and_store_no_secret(sandbox: Sandbox, target: str, client: str, login: tuple[str, str]) -> None:
    stores = make_stores(sandbox.root).items()
    settings = [word for name, value in stores for word in ("--set", f"broker.{name}={value}")]
    path = login_file(sandbox.root, CLIENT, SECRET, login, is_tls=True)
    chosen = ("--anomaly", "stuck-lso", "--client", client, "--command-config", str(path))
    ran = sandbox.run(target, *chosen, *settings).end(EXIT_ANOMALY)
    folder = sandbox.latest(target, "stuck-lso")
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["security"] == {"protocol": "SASL_SSL", "mechanism": login[0]}
    assert manifest["broker_settings"]["ssl.keystore.password"] == "(hidden)"
    files = [file for file in folder.rglob("*") if file.is_file()]
    leaks = [file for file in files if any(s.encode() in file.read_bytes() for s in (SECRET, STORE_SECRET))]
    assert leaks == []
    assert SECRET not in ran.output
