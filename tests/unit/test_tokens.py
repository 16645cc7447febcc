"""Bearer tokens: requested from a server on this host, read from a file, signed for MSK; renewed, and never shown."""

import base64
import json
import pickle
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from confluent_kafka import Producer
from fakes.http_servers import FakeServer, served

from harness.errors import HarnessError, UsageError
from harness.kafka_api.security import read_security
from harness.kafka_api.tokens import Token, Tokens, expiry_s, sign_token

SECRET = "the-secret-of-ann"  # noqa: S105
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
JAAS = f'{MODULE} required clientId="ann" clientSecret="{SECRET}" scope="read" extension_logicalCluster="lkc-1";'


def jwt(expires_s: float) -> str:
    """Return a token with a claim ``exp`` and no valid signature."""
    parts = [json.dumps(part).encode() for part in ({"alg": "none"}, {"sub": "ann", "exp": expires_s})]
    return ".".join([base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts] + ["signature"])


@contextmanager
def token_server(answer: object, status: int = 200) -> Iterator[tuple[str, FakeServer]]:
    with served(1) as servers:
        servers[1].answers["/token"] = (status, answer)
        yield f"http://127.0.0.1:{servers[1].port}/token", servers[1]


def login(folder: Path, url: str, *, jaas: str = JAAS, mechanism: str = "OAUTHBEARER", **others: str) -> Path:
    path = folder / "client.properties"
    path.write_text(
        f"security.protocol=SASL_SSL\nsasl.mechanism={mechanism}\nsasl.jaas.config={jaas}\n"
        f"sasl.oauthbearer.token.endpoint.url={url}\n"
        + "".join(f"{name.replace('_', '.')}={value}\n" for name, value in others.items())
    )
    return path


def test_a_token_is_requested_with_the_clients_credentials(tmp_path: Path) -> None:
    expires_s = time.time() + 600
    with token_server({"access_token": jwt(expires_s)}) as (url, server):
        security = read_security(login(tmp_path, url))
        provider = security.for_kafka_python["sasl_oauth_token_provider"]
        assert provider.token() == jwt(expires_s)
        assert provider.extensions() == {"logicalCluster": "lkc-1"}
        assert SECRET not in repr(provider)
        assert provider.token() not in repr(provider)
        oauth_cb = security.for_librdkafka()["oauth_cb"]
        assert oauth_cb("") == (jwt(expires_s), expires_s, "", {"logicalCluster": "lkc-1"})
        received = pickle.loads(pickle.dumps(security))  # noqa: S301  (of this process, after its first use)
        assert received.tokens.token() == security.tokens.token()
        Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0, **security.for_librdkafka()})
    assert set(server.authorizations) == {f"Basic {base64.b64encode(f'ann:{SECRET}'.encode()).decode()}"}
    assert {body for _, _, body in server.asked} == {"grant_type=client_credentials&scope=read"}


def test_the_properties_of_kafka_4_1_name_the_client_too(tmp_path: Path) -> None:
    prefix = "sasl_oauthbearer_client_credentials_client"
    names = {f"{prefix}_id": "bob", f"{prefix}_secret": "x", "sasl_oauthbearer_scope": "write"}
    with token_server({"access_token": "opaque", "expires_in": 60}) as (url, server):
        read_security(login(tmp_path, url, jaas=f"{MODULE} required;", **names))
    assert server.authorizations == [f"Basic {base64.b64encode(b'bob:x').decode()}"]
    assert server.asked[0][2].endswith("&scope=write")


@pytest.mark.parametrize(
    ("status", "answer", "expected"),
    [
        (401, {"error": "invalid_client"}, "HTTP Error 401"),
        (302, "/elsewhere", "HTTP Error 404"),
        (200, {"error": "none"}, "KeyError 'access_token'"),
        (200, ["token"], "TypeError"),
        (200, {"access_token": "opaque"}, "a token without an expiry"),
    ],
)
def test_a_server_that_gives_no_token_is_reported_without_the_secret(
    tmp_path: Path, status: int, answer: object, expected: str
) -> None:
    with token_server(answer, status) as (url, server), pytest.raises(UsageError) as refused:
        read_security(login(tmp_path, url))
    assert set(server.authorizations[1:]) <= {None}, "another address gets no secret"
    assert f"{url} gives client ann no token" in str(refused.value)
    assert expected in str(refused.value)
    assert SECRET not in str(refused.value)


def test_a_token_of_a_file_is_sent_to_executors(tmp_path: Path) -> None:
    text = jwt(time.time() + 600)
    (tmp_path / "token").write_text(f"{text}\n")
    security = read_security(login(tmp_path, f"file://{tmp_path}/token"))
    assert security.tokens.token() == text
    sent = pickle.dumps(security.without_files)
    (tmp_path / "token").unlink()
    received = pickle.loads(sent)  # noqa: S301  (of this process)
    assert received.tokens.token() == text
    with pytest.raises(UsageError, match=r"token is not usable: .*No such file") as refused:
        read_security(login(tmp_path, f"file://{tmp_path}/token"))
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
    assert [tokens.token(), tokens.token()] == ["token 1", "token 1"]
    server.now_s += 79
    assert tokens.token() == "token 1"
    server.now_s += 1
    assert tokens.token() == "token 2"
    server.is_up = False
    server.now_s += 99
    assert tokens.token() == "token 2"
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
    security = read_security(login(tmp_path, "", jaas=jaas, mechanism="AWS_MSK_IAM"))
    assert security.mechanism == "OAUTHBEARER"
    text, end_s = security.tokens.current()
    url = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    assert urlsplit(url)[:3] == ("https", "kafka.eu-west-1.amazonaws.com", "/")
    query = dict(parse_qsl(urlsplit(url).query))
    assert query["Action"] == "kafka-cluster:Connect"
    assert query["X-Amz-Expires"] == "900"
    assert query["X-Amz-Security-Token"] == "session"
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
