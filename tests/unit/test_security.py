"""Logins of clients: one properties file, translated for each client; bearer tokens, renewed and never shown."""

import base64
import json
import pickle
import ssl
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from confluent_kafka import KafkaException, Producer
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey as Key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509.oid import NameOID
from fakes.http_servers import FakeServer, served

from harness.errors import HarnessError, UsageError
from harness.kafka_api.address import Address
from harness.kafka_api.security import Security, read_security
from harness.kafka_api.tokens import Token, Tokens, expiry_s, sign_token

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
def key() -> Key:
    return ec.generate_private_key(ec.SECP256R1())


@pytest.fixture(scope="module")
def certificate(key: Key) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1)
    return builder.not_valid_before(now).not_valid_after(now + timedelta(days=1)).sign(key, SHA256())


@pytest.fixture
def pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()


@pytest.fixture
def tls(tmp_path: Path, pem: str) -> dict[str, str]:
    (tmp_path / "ca.pem").write_text(pem)
    store = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(tmp_path / "ca.pem")}
    return {"security.protocol": "SSL", **store}


@pytest.fixture
def java_store(key: Key, certificate: x509.Certificate) -> bytes:
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
    assert (subject.tls.check_hostname, subject.tls.verify_mode) == (True, ssl.CERT_REQUIRED)
    plaintext = read(tmp_path, {**SASL, "security.protocol": "sasl_plaintext", "sasl.mechanism": "SCRAM-SHA-512 "})
    assert plaintext.tls is None
    unquoted = read(tmp_path, {**SASL, "sasl.jaas.config": f"{MODULE} required username=ann password=pass-1;"})
    assert unquoted.credentials == ("ann", "pass-1")
    named = read(tmp_path, {**SASL, "sasl.jaas.config": f'{MODULE} required username="CN=a,b" password="p";'})
    assert named.for_kafka_python["sasl_plain_username"] == "CN=3Da=2Cb"
    assert plaintext.for_librdkafka()["security.protocol"] == "SASL_PLAINTEXT"


def test_the_brokers_name_may_be_anything_where_the_file_says_so(tmp_path: Path, tls: dict[str, str]) -> None:
    subject = read(tmp_path, {**tls, "ssl.endpoint.identification.algorithm": ""})
    assert subject.mechanism is None
    assert subject.tls is not None
    assert not subject.tls.check_hostname
    assert subject.for_librdkafka()["ssl.endpoint.identification.algorithm"] == "none"


def test_a_key_in_a_store_of_java(tmp_path: Path, key: Key, pem: str, java_store: bytes, tls: dict[str, str]) -> None:
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


def test_an_encrypted_key_is_opened_with_its_password(tmp_path: Path, key: Key, pem: str, tls: dict[str, str]) -> None:
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


@pytest.mark.parametrize(("changes", "expected"), [
    ({"security.protocol": "TLS"}, "security.protocol is TLS; give one of PLAINTEXT, SSL"),
    ({"sasl.mechanism": "DIGEST-MD5"}, "sasl.mechanism is DIGEST-MD5; give one of PLAIN, SCRAM-SHA-256"),
    ({"sasl.mechanism": None}, "sasl.jaas.config names no serviceName; give sasl.kerberos.service.name=kafka"),
    ({"sasl.mechanism": "OAUTHBEARER"}, "OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url: https://"),
    ({**OAUTH, "sasl.jaas.config": 'x required clientId="ann";'}, "needs clientId and clientSecret"),
    ({"sasl.mechanism": "AWS_MSK_IAM", "security.protocol": "SASL_PLAINTEXT"}, "needs security.protocol=SASL_SSL"),
    ({"sasl.jaas.config": 'x required username="ann";'}, "sasl.jaas.config names no password"),
    ({"sasl.jaas.config": "x required username=ann password=pass@1;"}, "sasl.jaas.config names no password"),
    ({"sasl.jaas.config": None}, "there is no sasl.jaas.config"),
    ({"ssl.truststore.type": "BCFKS"}, "is of type BCFKS, which only Java reads; convert it"),
    ({"ssl.truststore.type": "JKS"}, "cannot be opened"),
    ({"ssl.truststore.location": "/nowhere/ca.pem"}, "/nowhere/ca.pem: No such file"),
    ({"ssl.truststore.type": "PKCS12"}, "cannot be opened"),
])  # fmt: skip
def test_unusable_logins(tmp_path: Path, tls: dict[str, str], changes: dict[str, str | None], expected: str) -> None:
    properties = {name: value for name, value in {**tls, **SASL, **changes}.items() if value is not None}
    with pytest.raises(UsageError) as refused:
        read(tmp_path, properties)
    assert expected in str(refused.value)
    assert "pass" not in str(refused.value).replace("password", "")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--command-config .* cannot be read: .*No such file"):
        read_security(tmp_path / "nowhere")


def test_brokers_ask_for_the_login_of_the_file_and_nothing_shows_it(tmp_path: Path, tls: dict[str, str]) -> None:
    scram = read(tmp_path, {**tls, **SASL})
    assert scram.scram_user == f"SCRAM-SHA-512=[name=ann,password={PASSWORD}]"
    assert scram.for_brokers("CLIENT") == {
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.client.scram-sha-512.sasl.jaas.config": f"{MODULE} required;",
    }
    plain = read(tmp_path, {**tls, **SASL, "sasl.mechanism": "PLAIN"})
    assert plain.scram_user is None
    jaas = r'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="pass \"word\" \\ 1";'
    assert plain.for_brokers("CLIENT")["listener.name.client.plain.sasl.jaas.config"] == jaas
    shown = f"{scram!r} {scram} {Address('broker', 9092, scram)!r} {Address('broker', 9092, scram)}"
    assert "word" not in shown.replace("'client.properties'", "")


SECRET = "the-secret-of-ann"  # noqa: S105
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
OF_CLIENT = f'clientId="ann" clientSecret="{SECRET}" scope="read" extension_logicalCluster="lkc-1"'
OAUTH_JAAS = f"{OAUTH_MODULE} required {OF_CLIENT};"


def jwt(expires_s: float) -> str:
    """Return a token with a claim ``exp`` and no valid signature."""
    parts = [json.dumps(part).encode() for part in ({"alg": "none"}, {"sub": "ann", "exp": expires_s})]
    return ".".join([base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts] + ["signature"])


@contextmanager
def token_server(answer: object, status: int = 200) -> Iterator[tuple[str, FakeServer]]:
    with served(1) as servers:
        servers[1].answers["/token"] = (status, answer)
        yield f"http://127.0.0.1:{servers[1].port}/token", servers[1]


def login(folder: Path, url: str, changes: dict[str, str] | None = None) -> Security:
    of_login = {"sasl.jaas.config": OAUTH_JAAS, "sasl.oauthbearer.token.endpoint.url": url}
    sasl = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    return read(folder, {**sasl, **of_login, **(changes or {})})


def test_a_token_is_requested_with_the_clients_credentials(tmp_path: Path) -> None:
    expires_s = time.time() + 600
    with token_server({"access_token": jwt(expires_s)}) as (url, server):
        security = login(tmp_path, url)
        provider = security.for_kafka_python["sasl_oauth_token_provider"]
        assert provider.token() == jwt(expires_s)
        assert provider.extensions() == {"logicalCluster": "lkc-1"}
        assert [text for text in (SECRET, provider.token()) if text in repr(provider)] == []
        oauth_cb = security.for_librdkafka()["oauth_cb"]
        assert oauth_cb("") == (jwt(expires_s), expires_s, "", {"logicalCluster": "lkc-1"})
        received = pickle.loads(pickle.dumps(security))  # noqa: S301  (of this process, after its first use)
        assert received.tokens.token() == security.tokens.token()
        Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, **security.for_librdkafka()})
    assert set(server.authorizations) == {f"Basic {base64.b64encode(f'ann:{SECRET}'.encode()).decode()}"}
    assert {body for _, _, body in server.asked} == {"grant_type=client_credentials&scope=read"}


def test_the_properties_of_kafka_4_1_name_the_client_too(tmp_path: Path) -> None:
    prefix = "sasl.oauthbearer.client.credentials.client"
    names = {f"{prefix}.id": "bob", f"{prefix}.secret": "x", "sasl.oauthbearer.scope": "write"}
    with token_server({"access_token": "opaque", "expires_in": 60}) as (url, server):
        login(tmp_path, url, {"sasl.jaas.config": f"{OAUTH_MODULE} required;", **names})
    assert server.authorizations == [f"Basic {base64.b64encode(b'bob:x').decode()}"]
    assert server.asked[0][2].endswith("&scope=write")


@pytest.mark.parametrize(("status", "answer", "expected"), [
    (401, {"error": "invalid_client"}, "HTTP Error 401"),
    (302, "/elsewhere", "HTTP Error 404"),
    (200, {"error": "none"}, "KeyError 'access_token'"),
    (200, ["token"], "TypeError"),
    (200, {"access_token": "opaque"}, "a token without an expiry"),
])  # fmt: skip
def test_a_server_without_a_token(tmp_path: Path, status: int, answer: object, expected: str) -> None:
    with token_server(answer, status) as (url, server), pytest.raises(UsageError) as refused:
        login(tmp_path, url)
    assert set(server.authorizations[1:]) <= {None}, "another address gets no secret"
    parts = (f"{url} gives client ann no token", expected, SECRET)
    assert [part in str(refused.value) for part in parts] == [True, True, False]


def test_a_token_of_a_file_is_sent_to_executors(tmp_path: Path) -> None:
    text = jwt(time.time() + 600)
    (tmp_path / "token").write_text(f"{text}\n")
    security = login(tmp_path, f"file://{tmp_path}/token")
    assert security.tokens.token() == text
    sent = pickle.dumps(security.without_files)
    (tmp_path / "token").unlink()
    received = pickle.loads(sent)  # noqa: S301  (of this process)
    assert received.tokens.token() == text
    with pytest.raises(UsageError, match=r"token is not usable: .*No such file") as refused:
        login(tmp_path, f"file://{tmp_path}/token")
    assert text not in str(refused.value)


class Server:
    """Gives numbered tokens that are valid for 100 s, or refuses."""

    def __init__(self) -> None:
        self.now_s, self.requests, self.is_up = 1000.0, 0, True

    def request(self) -> Token:
        self.requests += 1
        if not self.is_up:
            raise HarnessError("refused")
        return f"token {self.requests}", self.now_s + 100


def test_a_token_is_renewed_before_its_end_and_kept_while_the_server_is_down() -> None:
    server = Server()
    tokens = Tokens(server.request, time_s=lambda: server.now_s)
    for after_s, is_up, expected in (0, True, 1), (0, True, 1), (79, True, 1), (1, True, 2), (99, False, 2):
        server.now_s, server.is_up = server.now_s + after_s, is_up
        assert tokens.token() == f"token {expected}"
    server.now_s += 1
    with pytest.raises(HarnessError, match="refused"):
        tokens.token()
    server.is_up = True
    assert tokens.token() == f"token {server.requests}"


@pytest.mark.parametrize("text", ["opaque", "a.b.c", "a.e30.c"])
def test_a_token_without_a_claim_ends_as_the_server_says(text: str) -> None:
    assert expiry_s(text, 60) == pytest.approx(time.time() + 60, abs=5)
    with pytest.raises(ValueError, match="without an expiry"):
        expiry_s(text)


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_SESSION_TOKEN": "session",
        "AWS_DEFAULT_REGION": "eu-west-1", "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"), "AWS_EC2_METADATA_DISABLED": "true",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("credentials")
def test_msk_gets_a_signed_request_as_token(tmp_path: Path) -> None:
    """The form that MSK documents for clients without a mechanism AWS_MSK_IAM. It was not tried on AWS."""
    jaas = "software.amazon.msk.auth.iam.IAMLoginModule required;"
    security = login(tmp_path, "", {"sasl.jaas.config": jaas, "sasl.mechanism": "AWS_MSK_IAM"})
    assert security.mechanism == "OAUTHBEARER"
    text, end_s = security.tokens.current()
    url = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    assert urlsplit(url)[:3] == ("https", "kafka.eu-west-1.amazonaws.com", "/")
    query = dict(parse_qsl(urlsplit(url).query))
    stated = {"Action": "kafka-cluster:Connect", "X-Amz-Expires": "900", "X-Amz-Security-Token": "session"}
    assert stated.items() <= query.items()
    assert query["X-Amz-Credential"].endswith("/eu-west-1/kafka-cluster/aws4_request")
    assert len(query["X-Amz-Signature"]) == 64
    assert end_s == pytest.approx(time.time() + 900, abs=30)
    assert security.for_librdkafka()["oauth_cb"]("")[0] == text
    with pytest.raises(UsageError, match="executors cannot log in, because AWS's credentials"):
        _ = security.without_files


@pytest.mark.usefixtures("credentials")
def test_missing_parts_of_a_login_to_msk_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HarnessError, match=r"no token: The config profile .nobody. could not be found"):
        sign_token({"awsProfileName": "nobody"})
    with pytest.raises(UsageError, match="takes awsProfileName only: name roles in a profile"):
        sign_token({"awsRoleArn": "arn:aws:iam::1:role/auditor"})
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    with pytest.raises(UsageError, match="needs AWS's credentials and AWS_DEFAULT_REGION"):
        sign_token({})
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(UsageError, match=r"pip install 'compaction-harness\[aws\]'"):
        sign_token({})
