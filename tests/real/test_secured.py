"""A cluster that asks for SASL over TLS: every client logs in, and the password is nowhere to be found afterwards."""

import json
from pathlib import Path

import pytest
from sandbox import Sandbox
from secured import PLAIN, SCRAM, STORE_SECRET, login_file, make_stores

from harness.errors import EXIT_ANOMALY, EXIT_USAGE

USER, USER_SECRET = "ann", "the-password-of-ann"


def broker_settings(folder: Path) -> list[str]:
    """Return the options that give the brokers a separate key."""
    return [word for name, value in make_stores(folder).items() for word in ("--set", f"broker.{name}={value}")]


@pytest.mark.parametrize(
    ("target", "client", "login"),
    [("kafka-3.9", "librdkafka", SCRAM), ("kafka-4.4", "java", PLAIN)],
    ids=["SCRAM, librdkafka", "PLAIN, java"],
)
def test_every_client_logs_in_and_no_secret_is_stored(
    sandbox: Sandbox, target: str, client: str, login: tuple[str, str]
) -> None:
    settings = broker_settings(sandbox.root)
    path = login_file(sandbox.root, USER, USER_SECRET, login, is_tls=True)
    chosen = ("--anomaly", "stuck-lso", "--client", client, "--command-config", str(path))
    ran = sandbox.run(target, *chosen, *settings).end(EXIT_ANOMALY)
    folder = sandbox.latest(target, "stuck-lso")
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["security"] == {"protocol": "SASL_SSL", "mechanism": login[0]}
    assert manifest["broker_settings"]["ssl.keystore.password"] == "(hidden)"
    files = [file for file in folder.rglob("*") if file.is_file()]
    leaks = [file for file in files if any(s.encode() in file.read_bytes() for s in (USER_SECRET, STORE_SECRET))]
    assert leaks == []
    assert USER_SECRET not in ran.output


@pytest.mark.commit
def test_a_truststore_that_is_missing_is_reported_before_anything_starts(sandbox: Sandbox) -> None:
    settings = broker_settings(sandbox.root)
    path = login_file(sandbox.root, USER, USER_SECRET, SCRAM, is_tls=True)
    path.write_text(path.read_text().replace("ca.pem", "nowhere.pem"))
    ran = sandbox.run("kafka-3.9", "--anomaly", "stuck-lso", "--command-config", str(path), *settings).end(EXIT_USAGE)
    assert "nowhere.pem: No such file" in ran.stderr
    assert USER_SECRET not in ran.output
