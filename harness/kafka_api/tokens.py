"""Bearer tokens (RFC 7628), as Java clients get them (KIP-768, KIP-1139): from a server, a file, or for Amazon MSK."""

import base64
import json
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final, TypeAlias
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from kafka.net.sasl.oauth import AbstractTokenProvider

from harness.errors import HarnessError, UsageError, raised_as

ANSWER_S: Final = 10.0

Token: TypeAlias = "tuple[str, float]"  # noqa: S105  (a type)
"""A token, and the end of its validity in Unix seconds."""


@dataclass(eq=False, repr=False)
class Tokens(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python accepts only its subclasses
    """Returns the current token; several threads may use it. ``request``: for a new token. ``added``: KIP-342."""

    request: Callable[[], Token]
    added: Mapping[str, str] = field(default_factory=dict)
    time_s: Callable[[], float] = time.time
    _current: Token = ("", 0.0)
    _renew_at_s: float = 0.0
    _lock: Any = field(default_factory=Lock)

    def current(self) -> Token:
        """Return a valid token. If a new token cannot be requested, the previous token is used until it expires."""
        with self._lock:
            now_s = self.time_s()
            if now_s >= self._renew_at_s:
                try:
                    self._current = self.request()
                except HarnessError:
                    if now_s >= self._current[1]:
                        raise
                else:
                    # ``sasl.login.refresh.window.factor``
                    self._renew_at_s = now_s + 0.8 * (self._current[1] - now_s)
            return self._current

    def token(self) -> str:
        """Return the token's text, as kafka-python asks for it."""
        return self.current()[0]

    def extensions(self) -> dict[str, str]:
        """Return the SASL extensions, as kafka-python asks for them."""
        return dict(self.added)

    def for_librdkafka(self, _config: str) -> tuple[str, float, str, dict[str, str]]:
        """Return token, end in Unix seconds, principal and extensions: librdkafka's ``oauth_cb``."""
        return *self.current(), "", dict(self.added)


def request_token(url: str, client: tuple[str, str], scope: str | None, trusted: ssl.SSLContext) -> Token:
    """Return a token by a grant of client credentials (RFC 6749, 4.4). Raises `HarnessError`, without the secret."""
    credentials = base64.b64encode(":".join(client).encode()).decode()
    form = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}
    request = Request(url, urlencode(form).encode(), {"Accept": "application/json"})  # noqa: S310  (https or http)
    request.add_unredirected_header("Authorization", f"Basic {credentials}")
    try:
        with urlopen(request, timeout=ANSWER_S, context=trusted) as answer:  # noqa: S310  (https or http)
            content = json.load(answer)
        return content["access_token"], expiry_s(content["access_token"], content.get("expires_in"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise HarnessError(f"{url} gives client {client[0]} no token: {type(error).__name__} {error}") from error


def read_token(url: str) -> Token:
    """Return the token of a ``file:`` or ``data:`` URL. Raises `HarnessError`."""
    with raised_as(HarnessError, "the file of the token is not usable", OSError, ValueError):
        with urlopen(url) as file:  # noqa: S310  (Kafka's own form of a token's path)
            text = file.read().decode().strip()
        return text, expiry_s(text)


def expiry_s(text: str, expires_in_s: float | None = None) -> float:
    """Return the end in Unix seconds: a JWT's ``exp``, or the seconds that the server has named. Raises ValueError."""
    try:
        payload = text.split(".")[1]
        return float(json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["exp"])
    except (ValueError, LookupError, TypeError):
        if expires_in_s is None:
            raise ValueError("a token without an expiry") from None
        return time.time() + float(expires_in_s)


def sign_token(options: Mapping[str, str]) -> Token:
    """Return a token for Amazon MSK's IAM access control, signed with the credentials of AWS's chain.

    ``options``: of IAMLoginModule. Raises `HarnessError`; `UsageError` for a missing package, region or credentials.
    """
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider as Signer  # noqa: PLC0415  (optional)
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415
        from botocore.session import Session  # noqa: PLC0415
    except ImportError as error:
        raise UsageError("AWS_MSK_IAM needs a package: pip install 'compaction-harness[aws]'") from error
    if options.keys() - {"awsProfileName"}:
        raise UsageError("AWS_MSK_IAM takes awsProfileName only: name roles in a profile of ~/.aws/config")
    with raised_as(HarnessError, "AWS_MSK_IAM: no token", BotoCoreError, ClientError, ValueError):
        session = Session(profile=(profile := options.get("awsProfileName")))
        region = session.get_config_variable("region")
        if region is None or session.get_credentials() is None:
            raise UsageError("AWS_MSK_IAM needs AWS's credentials and AWS_DEFAULT_REGION, or a profile with both")
        text, end_ms = Signer.generate_auth_token_from_profile(region, profile)
    return text, end_ms / 1000
