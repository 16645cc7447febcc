"""A cluster that asks for SASL over TLS: every client logs in, and the password is nowhere to be found afterwards."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509.oid import NameOID

from harness.errors import EXIT_ANOMALY, EXIT_USAGE

if TYPE_CHECKING:
    from pathlib import Path

    from sandbox import Sandbox

pytestmark = pytest.mark.timeout(300)

USER_SECRET, STORE_SECRET = "the-password-of-ann", "the-password-of-the-store"


def make_stores(folder: Path) -> list[str]:
    """Write the brokers' key, and the authority that clients trust; return the settings that brokers need."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "broker")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, SHA256())
    )
    (folder / "ca.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    protection = BestAvailableEncryption(STORE_SECRET.encode())
    (folder / "broker.p12").write_bytes(serialize_key_and_certificates(b"broker", key, certificate, None, protection))
    settings = {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(folder / "broker.p12"),
        "ssl.keystore.password": STORE_SECRET,
    }
    return [argument for name, value in settings.items() for argument in ("--set", f"broker.{name}={value}")]


def client_file(folder: Path, mechanism: str, module: str) -> Path:
    path = folder / "client.properties"
    path.write_text(
        "security.protocol=SASL_SSL\n"
        f"sasl.mechanism={mechanism}\n"
        f'sasl.jaas.config={module} required username="ann" password="{USER_SECRET}";\n'
        f"ssl.truststore.type=PEM\nssl.truststore.location={folder / 'ca.pem'}\n"
    )
    return path


SCRAM = ("SCRAM-SHA-512", "org.apache.kafka.common.security.scram.ScramLoginModule")
PLAIN = ("PLAIN", "org.apache.kafka.common.security.plain.PlainLoginModule")


@pytest.mark.parametrize(
    ("target", "client", "login"),
    [("kafka-3.9", "librdkafka", SCRAM), ("kafka-4.4", "java", PLAIN)],
    ids=["SCRAM, librdkafka", "PLAIN, java"],
)
def test_every_client_logs_in_and_no_secret_is_stored(
    sandbox: Sandbox, target: str, client: str, login: tuple[str, str]
) -> None:
    settings = make_stores(sandbox.root)
    path = client_file(sandbox.root, *login)
    chosen = ("--anomaly", "stuck-lso", "--client", client, "--command-config", str(path))
    ran = sandbox.run(target, *chosen, *settings).end()
    assert ran.code == EXIT_ANOMALY, ran.output
    folder = sandbox.latest(target, "stuck-lso")
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["security"] == {"protocol": "SASL_SSL", "mechanism": login[0]}
    assert manifest["broker_settings"]["ssl.keystore.password"] == "(hidden)"
    files = [file for file in folder.rglob("*") if file.is_file()]
    leaks = [file for file in files if any(s.encode() in file.read_bytes() for s in (USER_SECRET, STORE_SECRET))]
    assert leaks == []
    assert USER_SECRET not in ran.output


def test_a_truststore_that_is_missing_is_reported_before_anything_starts(sandbox: Sandbox) -> None:
    settings = make_stores(sandbox.root)
    path = client_file(sandbox.root, *SCRAM)
    path.write_text(path.read_text().replace("ca.pem", "nowhere.pem"))
    ran = sandbox.run("kafka-3.9", "--anomaly", "stuck-lso", "--command-config", str(path), *settings).end()
    assert ran.code == EXIT_USAGE, ran.output
    assert "nowhere.pem: No such file" in ran.stderr
    assert USER_SECRET not in ran.output
