"""Servers that a login needs: an OAuth server in this process, and a KDC of Debian's packages."""

import base64
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from fakes.http_servers import serving
from sandbox import takes_connections, wait_until

from harness.host import commands

ISSUER, AUDIENCE, REALM = "https://issuer.test", "kafka", "TEST.LOCAL"
END_S, ANSWER_S = 10, 30


def encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def number(value: int) -> str:
    return encoded(value.to_bytes((value.bit_length() + 7) // 8))


@dataclass
class OAuthServer:
    """Grants tokens to one client, and publishes the key that they are signed with. ``granted``: how many tokens."""

    client: tuple[str, str]
    lifetime_s: int
    granted: int = 0
    url: str = ""
    _key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))

    def keys(self) -> dict[str, Any]:
        """Return the JSON Web Key Set (RFC 7517)."""
        public = self._key.public_key().public_numbers()
        key = {"kty": "RSA", "kid": "1", "alg": "RS256", "use": "sig", "n": number(public.n), "e": number(public.e)}
        return {"keys": [key]}

    def grant(self) -> dict[str, Any]:
        """Return the answer with a signed token (RFC 7519)."""
        self.granted += 1
        now_s = int(time.time())
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": self.client[0], "iat": now_s, "exp": now_s + self.lifetime_s}
        signed = ".".join(encoded(json.dumps(part).encode()) for part in ({"alg": "RS256", "kid": "1"}, claims))
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), SHA256())
        return {"access_token": f"{signed}.{encoded(signature)}", "token_type": "Bearer"}


@contextmanager
def oauth_server(client: tuple[str, str], lifetime_s: int) -> Iterator[OAuthServer]:
    """Serve ``/token`` and ``/keys`` until the block ends."""
    subject = OAuthServer(client, lifetime_s)
    expected = f"Basic {base64.b64encode(':'.join(client).encode()).decode()}"

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(200, subject.keys())

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers["Authorization"] == expected:
                self._answer(200, subject.grant())
            else:
                self._answer(401, {"error": "invalid_client"})

        def _answer(self, status: int, content: Mapping[str, Any]) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(content).encode())

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    subject.url = f"http://127.0.0.1:{server.server_port}"
    with serving(server):
        yield subject


KDC_CONF = """\
[realms]
{realm} = {{
  database_name = {folder}/principal
  key_stash_file = {folder}/stash
  kdc_ports = {port}
  kdc_tcp_ports = {port}
}}
"""
KRB5_CONF = """\
[libdefaults]
default_realm = {realm}
dns_lookup_kdc = false
dns_lookup_realm = false
dns_canonicalize_hostname = false
rdns = false
udp_preference_limit = 1
[realms]
{realm} = {{
  kdc = 127.0.0.1:{port}
}}
"""


@dataclass(frozen=True)
class Kdc:
    """A running key distribution centre. ``variables``: the environment of its clients."""

    folder: Path
    variables: Mapping[str, str]

    def keytab(self, principal: str) -> Path:
        """Create a principal with a random key, and return its keytab."""
        path = self.folder / f"{principal.partition('/')[0]}.keytab"
        for query in (f"addprinc -randkey {principal}", f"ktadd -k {path} {principal}"):
            self.call("kadmin.local", "-r", REALM, "-q", query)
        return path

    def call(self, *words: str) -> str:
        return commands.run(*words, variables=self.variables)


@contextmanager
def kdc(folder: Path) -> Iterator[Kdc]:
    """Create a realm and serve it until the block ends."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for name, text in (("kdc.conf", KDC_CONF), ("krb5.conf", KRB5_CONF)):
        (folder / name).write_text(text.format(realm=REALM, folder=folder, port=port))
    variables = {"KRB5_CONFIG": str(folder / "krb5.conf"), "KRB5_KDC_PROFILE": str(folder / "kdc.conf")}
    subject = Kdc(folder, {**variables, "KRB5CCNAME": f"FILE:{folder}/tickets"})
    subject.call("kdb5_util", "create", "-s", "-r", REALM, "-P", "the master key of a test")
    command = [commands.find("krb5kdc") or "krb5kdc", "-n"]
    daemon = subprocess.Popen(command, env={**os.environ, **variables}, stdin=subprocess.DEVNULL)
    try:
        wait_until(lambda: takes_connections("127.0.0.1", port), ANSWER_S, "the KDC")
        yield subject
    finally:
        daemon.terminate()
        daemon.wait(END_S)
