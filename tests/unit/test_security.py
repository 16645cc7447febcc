"""Logins of clients: one properties file, translated for each client, and readable by nobody else."""

import pickle
import ssl
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509.oid import NameOID

from harness.errors import UsageError
from harness.kafka_api.address import Address
from harness.kafka_api.security import Security, read_security
from harness.play import begin

PASSWORD = 'pass "word" \\ 1'  # noqa: S105
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
JAAS = rf'{MODULE} required username="ann" password="pass \\"word\\" \\\\ 1";'
OAUTH = {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "https://127.0.0.1:1/token"}
SASL = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": JAAS}


def read(folder: Path, properties: dict[str, str]) -> Security:
    path = folder / "client.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return read_security(path)


@pytest.fixture(scope="module")
def key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@pytest.fixture(scope="module")
def certificate(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .sign(key, SHA256())
    )


@pytest.fixture
def pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()


@pytest.fixture
def tls(tmp_path: Path, pem: str) -> dict[str, str]:
    (tmp_path / "ca.pem").write_text(pem)
    store = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(tmp_path / "ca.pem")}
    return {"security.protocol": "SSL", **store}


@pytest.fixture
def java_store(key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> bytes:
    return serialize_key_and_certificates(b"me", key, certificate, None, BestAvailableEncryption(b"secret"))


def test_sasl_and_tls_in_the_terms_of_each_client(tmp_path: Path, tls: dict[str, str], pem: str) -> None:
    subject = read(tmp_path, {**tls, **SASL, "group.id": "mine"})
    assert subject.credentials == ("ann", PASSWORD)
    assert subject.for_librdkafka() == {
        "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "ann",
        "sasl.password": PASSWORD, "ssl.endpoint.identification.algorithm": "https", "ssl.ca.pem": pem,
    }  # fmt: skip
    assert "group.id" not in subject.properties
    assert subject.properties["sasl.mechanism"] == "SCRAM-SHA-512"
    assert subject.tls is not None
    assert subject.tls.check_hostname
    assert subject.tls.verify_mode is ssl.CERT_REQUIRED
    plaintext = read(tmp_path, {**SASL, "security.protocol": "SASL_PLAINTEXT"})
    assert plaintext.tls is None
    assert plaintext.for_librdkafka()["security.protocol"] == "SASL_PLAINTEXT"


def test_the_brokers_name_may_be_anything_where_the_file_says_so(tmp_path: Path, tls: dict[str, str]) -> None:
    subject = read(tmp_path, {**tls, "ssl.endpoint.identification.algorithm": ""})
    assert subject.mechanism is None
    assert subject.tls is not None
    assert not subject.tls.check_hostname
    assert subject.for_librdkafka()["ssl.endpoint.identification.algorithm"] == "none"


def test_a_key_in_a_store_of_java_is_the_clients_own(
    tmp_path: Path, key: ec.EllipticCurvePrivateKey, pem: str, java_store: bytes, tls: dict[str, str]
) -> None:
    (tmp_path / "own.p12").write_bytes(java_store)
    own = {"ssl.keystore.location": str(tmp_path / "own.p12"), "ssl.keystore.password": "secret"}
    security = read(tmp_path, {**tls, **own, "ssl.keystore.type": "PKCS12"})
    config = security.for_librdkafka()
    plain = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    assert config["ssl.key.pem"].startswith(plain)
    assert pem in config["ssl.certificate.pem"]
    Producer({**config, "bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    sent = pickle.dumps(security.without_files)
    for file in (tmp_path / "own.p12", tmp_path / "ca.pem"):
        file.unlink()
    received = pickle.loads(sent)  # noqa: S301  (of this process)
    assert received.for_librdkafka() == config
    assert received.tls is not None


def test_an_encrypted_key_is_opened_with_its_password(
    tmp_path: Path, key: ec.EllipticCurvePrivateKey, pem: str, tls: dict[str, str]
) -> None:
    encrypted = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")).decode()
    (tmp_path / "own.pem").write_text(encrypted + pem)
    own = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(tmp_path / "own.pem"), "ssl.key.password": "secret"}
    config = {**read(tmp_path, {**tls, **own}).for_librdkafka(), "bootstrap.servers": "127.0.0.1:1", "log_level": 0}
    assert (config["ssl.key.pem"], config["ssl.key.password"]) == (encrypted + pem, "secret")
    Producer(config)
    with pytest.raises(KafkaException, match=r"ssl\.key\.pem failed"):
        Producer({**config, "ssl.key.password": "other"})
    for password in ("other", ""):
        with pytest.raises(UsageError, match=r"the client's key or ssl\.key\.password is wrong"):
            read(tmp_path, {**tls, **own, "ssl.key.password": password})


def test_a_java_store_has_the_form_of_its_first_bytes(tmp_path: Path, java_store: bytes, tls: dict[str, str]) -> None:
    store = tmp_path / "own.jks"
    store.write_bytes(java_store)
    properties = {**tls, "ssl.keystore.location": str(store), "ssl.keystore.password": "secret"}
    assert read(tmp_path, properties).own is not None
    store.write_bytes(bytes.fromhex("feedfeed00000002"))
    with pytest.raises(UsageError, match="is of type JKS, which only Java reads; convert it"):
        read(tmp_path, properties)


def test_a_login_by_kerberos_needs_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.kerberos.service.name": "kafka"}
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(UsageError, match=r"GSSAPI needs a package: pip install 'compaction-harness\[kerberos\]'"):
        read(tmp_path, properties)
    security = Security("client.properties", properties)
    assert security.for_kafka_python == {"sasl_kerberos_service_name": "kafka"}
    with pytest.raises(UsageError, match="librdkafka, whose wheels have no GSSAPI"):
        security.for_librdkafka()
    with pytest.raises(UsageError, match="executors cannot log in, because a Kerberos ticket"):
        _ = security.without_files
    with pytest.raises(UsageError, match="own brokers take PLAIN and SCRAM, not GSSAPI"):
        security.for_brokers("CLIENT")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"security.protocol": "TLS"}, "security.protocol is TLS; give one of PLAINTEXT, SSL"),
        ({"sasl.mechanism": "DIGEST-MD5"}, "sasl.mechanism is DIGEST-MD5; give one of PLAIN, SCRAM-SHA-256"),
        ({"sasl.mechanism": None}, "sasl.jaas.config names no serviceName; give sasl.kerberos.service.name=kafka"),
        ({"sasl.mechanism": "OAUTHBEARER"}, "OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url: https://"),
        ({**OAUTH, "sasl.jaas.config": 'x required clientId="ann";'}, "needs clientId and clientSecret"),
        ({"sasl.mechanism": "AWS_MSK_IAM", "security.protocol": "SASL_PLAINTEXT"}, "needs security.protocol=SASL_SSL"),
        ({"sasl.jaas.config": 'x required username="ann";'}, "sasl.jaas.config names no password"),
        ({"sasl.jaas.config": None}, "there is no sasl.jaas.config"),
        ({"ssl.truststore.type": "BCFKS"}, "is of type BCFKS, which only Java reads; convert it"),
        ({"ssl.truststore.type": "JKS"}, "cannot be opened"),
        ({"ssl.truststore.location": "/nowhere/ca.pem"}, "/nowhere/ca.pem: No such file"),
        ({"ssl.truststore.type": "PKCS12"}, "cannot be opened"),
    ],
)
def test_what_cannot_be_honoured_is_reported_without_the_password(
    tmp_path: Path, tls: dict[str, str], changes: dict[str, str | None], expected: str
) -> None:
    properties = {name: value for name, value in {**tls, **SASL, **changes}.items() if value is not None}
    with pytest.raises(UsageError) as refused:
        read(tmp_path, properties)
    assert expected in str(refused.value)
    assert "pass" not in str(refused.value).replace("password", "")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--command-config .* cannot be read: .*No such file"):
        read_security(tmp_path / "nowhere")


def test_nothing_shows_the_password(tmp_path: Path, tls: dict[str, str]) -> None:
    security = read(tmp_path, {**tls, **SASL})
    shown = f"{security!r} {security} {Address('broker', 9092, security)!r} {Address('broker', 9092, security)}"
    assert "word" not in shown.replace("'client.properties'", "")


def test_brokers_ask_for_the_login_that_the_file_has(tmp_path: Path, tls: dict[str, str]) -> None:
    scram = read(tmp_path, {**tls, **SASL})
    assert scram.scram_user == f"SCRAM-SHA-512=[name=ann,password={PASSWORD}]"
    assert scram.for_brokers("CLIENT") == {
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.client.scram-sha-512.sasl.jaas.config": f"{MODULE} required;",
    }
    plain = read(tmp_path, {**tls, **SASL, "sasl.mechanism": "PLAIN"})
    assert plain.scram_user is None
    assert plain.for_brokers("CLIENT")["listener.name.client.plain.sasl.jaas.config"] == (
        r'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="pass \"word\" \\ 1";'
    )


def test_settings_are_stored_without_secrets() -> None:
    stored = begin.without_secrets({"ssl.keystore.password": "x", "a.sasl.jaas.config": "x", "num.io.threads": "2"})
    assert stored == {"ssl.keystore.password": "(hidden)", "a.sasl.jaas.config": "(hidden)", "num.io.threads": "2"}
