"""The login of clients to brokers: a Java client's properties file, translated for every client in use.

The Java client takes the properties as they are; librdkafka and the harness's own connections take translated
settings. Secrets are kept in memory only, and appear in no text that this module returns except clients' settings.
"""

import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any
from urllib.parse import quote, urlsplit

import javaproperties

from harness.errors import HarnessError, UsageError, raised_as
from harness.kafka_api.tokens import Token, Tokens, read_token, request_token, sign_token

PROTOCOLS = PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL = "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"
PLAIN, SCRAM_256, SCRAM_512 = "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"
OAUTHBEARER, GSSAPI, AWS_MSK_IAM = "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM"
MECHANISMS = (PLAIN, SCRAM_256, SCRAM_512, OAUTHBEARER, GSSAPI, AWS_MSK_IAM)

JAAS = "sasl.jaas.config"
TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105  (the name of a property)
SERVICE, KEY_PASSWORD = "sasl.kerberos.service.name", "ssl.key.password"
ONLY_HERE = {GSSAPI: "a Kerberos ticket is for this host", AWS_MSK_IAM: "AWS's credentials belong to this host"}
"""The reasons why a login cannot be sent to other hosts."""
JKS_MAGIC = b"\xfe\xed\xfe\xed"
"""The first bytes of a JKS file. Since Java 9, type JKS also reads PKCS#12 files, the form that keytool writes."""
ENDPOINT = "ssl.endpoint.identification.algorithm"

JAAS_OPTION = re.compile(r"""\b(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([\w.$-]+)(?=[\s;]))""")


@dataclass(frozen=True)
class Security:
    """The login properties of a properties file. ``source``: the file, for messages."""

    source: str
    properties: Mapping[str, str] = field(repr=False)

    @property
    def protocol(self) -> str:
        """``security.protocol``, in capitals: Kafka accepts small letters, too (``SecurityProtocol.forName``)."""
        return self.properties.get("security.protocol", PLAINTEXT).upper()

    @property
    def mechanism(self) -> str | None:
        """The mechanism that brokers are asked for; None without SASL.

        ``sasl.mechanism``, but MSK takes the signed request of ``AWS_MSK_IAM`` as a token, too, as librdkafka needs it.
        """
        if not self.protocol.startswith("SASL"):
            return None
        return OAUTHBEARER if self.named_mechanism == AWS_MSK_IAM else self.named_mechanism

    @property
    def named_mechanism(self) -> str:
        """``sasl.mechanism``, with the Java client's default."""
        return self.properties.get("sasl.mechanism", GSSAPI)

    @property
    def jaas(self) -> dict[str, str]:
        """The options of ``sasl.jaas.config``, in quotes or not (``JaasConfig``)."""
        text = self.properties.get(JAAS, "")
        options = {name: "".join(values) for name, *values in JAAS_OPTION.findall(text)}
        return {name: re.sub(r"\\(.)", r"\1", value) for name, value in options.items()}

    @property
    def credentials(self) -> tuple[str, str]:
        """User name and password of ``sasl.jaas.config``."""
        return self.jaas["username"], self.jaas["password"]

    @cached_property
    def tokens(self) -> Tokens:
        """The tokens of a login by OAUTHBEARER. Raises `UsageError` for an incomplete or unsupported source."""
        options, url = self.jaas, self.properties.get(TOKEN_URL, "")
        request: Callable[[], Token]
        if self.named_mechanism == AWS_MSK_IAM:
            request = partial(sign_token, options)
        elif urlsplit(url).scheme in {"file", "data"}:
            request = partial(read_token, url)
        elif urlsplit(url).scheme in {"https", "http"}:
            prefix = "sasl.oauthbearer.client.credentials.client"
            user, secret = (
                self.properties.get(f"{prefix}.{name}") or options.get(f"client{name.title()}")
                for name in ("id", "secret")
            )
            if user is None or secret is None:
                raise UsageError(f"{JAAS} needs clientId and clientSecret: no other grant is supported")
            scope = self.properties.get("sasl.oauthbearer.scope") or options.get("scope")
            trusted = ssl.create_default_context()
            if self.trusted:
                trusted.load_verify_locations(cadata=self.trusted)
            request = partial(request_token, url, (user, secret), scope, trusted)
        else:
            raise UsageError(f"{OAUTHBEARER} needs {TOKEN_URL}: https://, http:// or file://")
        return Tokens(request, {name[10:]: value for name, value in options.items() if name.startswith("extension_")})

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the properties, without connections' TLS contexts and tokens."""
        return Security, (self.source, dict(self.properties))

    @property
    def verifies_host(self) -> bool:
        """Return whether the certificate must name the broker's host."""
        return self.properties.get(ENDPOINT, "https") != ""

    @cached_property
    def trusted(self) -> str | None:
        """The trusted certificates, as PEM; None for the system's."""
        return _pem_of(self, "ssl.truststore", "certificates", has_key=False)

    @cached_property
    def own(self) -> str | None:
        """The client's own certificate chain and its key, as PEM; None without one."""
        return _pem_of(self, "ssl.keystore", "key", "certificate.chain", has_key=True)

    @property
    def without_files(self) -> "Security":
        """The same login with the content of its files. Raises `UsageError` for a login that other hosts cannot use."""
        if self.mechanism and (reason := ONLY_HERE.get(self.named_mechanism)):
            raise UsageError(f"{self.source}: executors cannot log in, because {reason}; use --spark-master local[N]")
        stores = ("ssl.truststore.", "ssl.keystore.")
        properties = {name: value for name, value in self.properties.items() if not name.startswith(stores)}
        if properties.get(TOKEN_URL, "").startswith("file:"):
            properties[TOKEN_URL] = f"data:,{quote(self.tokens.token())}"
        inlined = {"ssl.truststore.certificates": self.trusted, "ssl.keystore.key": self.own}
        return Security(self.source, {**properties, **{name: value for name, value in inlined.items() if value}})

    @property
    def for_kafka_python(self) -> dict[str, Any]:
        """The login as the keywords of kafka-python's mechanisms."""
        if self.mechanism == OAUTHBEARER:
            return {"sasl_oauth_token_provider": self.tokens}
        if self.mechanism == GSSAPI:
            return {"sasl_kerberos_service_name": self.properties.get(SERVICE) or self.jaas["serviceName"]}
        user, password = self.credentials
        if self.mechanism != PLAIN:
            user = user.replace("=", "=3D").replace(",", "=2C")  # ``ScramFormatter.saslName``: not done by kafka-python
        return {"sasl_mechanism": self.mechanism, "sasl_plain_username": user, "sasl_plain_password": password}

    def for_librdkafka(self) -> dict[str, Any]:
        """Return the login as librdkafka's properties. Raises `UsageError` for GSSAPI."""
        config: dict[str, Any] = {"security.protocol": self.protocol}
        if self.mechanism == GSSAPI:
            raise UsageError(
                f"{self.source}: this command also connects by librdkafka, whose wheels have no GSSAPI: use another"
                " sasl.mechanism for it"
            )
        if self.mechanism == OAUTHBEARER:
            config |= {"sasl.mechanism": OAUTHBEARER, "oauth_cb": self.tokens.for_librdkafka}
        elif self.mechanism is not None:
            user, password = self.credentials
            config |= {"sasl.mechanism": self.mechanism, "sasl.username": user, "sasl.password": password}
        if self.protocol in {SSL, SASL_SSL}:
            config[ENDPOINT] = "https" if self.verifies_host else "none"
            config |= {"ssl.ca.pem": self.trusted} if self.trusted else {}
            if self.own:
                pem = dict.fromkeys(("ssl.certificate.pem", "ssl.key.pem"), self.own)
                config |= {**pem, "ssl.key.password": self.properties.get(KEY_PASSWORD, "")}
        return config

    def for_brokers(self, listener: str) -> dict[str, str]:
        """Return the broker settings for a listener with this login, without the broker's own key.

        SCRAM's users are created when storage is formatted (KIP-900). Raises `UsageError` for other mechanisms.
        """
        if self.mechanism is None:
            return {}
        if self.mechanism in {OAUTHBEARER, GSSAPI}:
            raise UsageError(
                f"{self.source}: the harness's own brokers take {PLAIN} and SCRAM, not {self.named_mechanism}"
            )
        user, password = (value.replace("\\", "\\\\").replace('"', '\\"') for value in self.credentials)
        module = "scram.ScramLoginModule required;"
        if self.mechanism == PLAIN:
            module = f'plain.PlainLoginModule required user_{user}="{password}";'
        jaas = f"listener.name.{listener.lower()}.{self.mechanism.lower()}.sasl.jaas.config"
        return {"sasl.enabled.mechanisms": self.mechanism, jaas: f"org.apache.kafka.common.security.{module}"}

    @property
    def scram_user(self) -> str | None:
        """The argument for formatting storage that creates the user; None where none is needed."""
        if self.mechanism not in {SCRAM_256, SCRAM_512}:
            return None
        user, password = self.credentials
        return f"{self.mechanism}=[name={user},password={password}]"

    @cached_property
    def tls(self) -> ssl.SSLContext | None:
        """The TLS context of a connection; None where the protocol has none."""
        if self.protocol not in {SSL, SASL_SSL}:
            return None
        context = ssl.create_default_context(cadata=self.trusted)
        context.check_hostname = self.verifies_host
        if self.own:
            # The library reads a certificate from a file only; other users cannot open this file.
            with NamedTemporaryFile("w", suffix=".pem") as file:
                file.write(self.own)
                file.flush()
                with raised_as(UsageError, f"{self.source}: the client's key or {KEY_PASSWORD} is wrong", ssl.SSLError):
                    # Without a password, OpenSSL would ask the terminal for it.
                    context.load_cert_chain(file.name, password=self.properties.get(KEY_PASSWORD, ""))
        return context


def read_security(path: Path) -> Security:
    """Return the login of a Java client's properties file. Raises `UsageError`, which contains no secrets."""
    with raised_as(UsageError, f"--command-config {path} cannot be read", OSError, ValueError):
        properties = javaproperties.loads(path.read_text(encoding="utf-8"))
    # Other properties of the file are not passed on. Kafka strips values, too (``ConfigDef.parseType``).
    login = {n: value.strip() for n, value in properties.items() if n.startswith(("security.", "sasl.", "ssl."))}
    security = Security(str(path), login)
    if security.protocol not in PROTOCOLS:
        raise UsageError(f"{path}: security.protocol is {security.protocol}; give one of {', '.join(PROTOCOLS)}")
    if security.protocol.startswith("SASL"):
        _raise_for_sasl(security)
    if security.protocol.endswith("SSL"):
        _ = security.tls
    return security


def _raise_for_sasl(security: Security) -> None:
    mechanism = security.named_mechanism
    if mechanism not in MECHANISMS:
        raise UsageError(f"{security.source}: sasl.mechanism is {mechanism}; give one of {', '.join(MECHANISMS)}")
    if mechanism == AWS_MSK_IAM and security.protocol != SASL_SSL:
        raise UsageError(f"{security.source}: {AWS_MSK_IAM} needs security.protocol={SASL_SSL}")
    try:
        _ = security.for_kafka_python
        if security.mechanism == OAUTHBEARER:
            security.tokens.current()
    except KeyError as error:
        problem = f"{JAAS} names no {error.args[0]}" if JAAS in security.properties else f"there is no {JAAS}"
        example = '…LoginModule required username="…" password="…";'
        if mechanism == GSSAPI:
            example = f"{SERVICE}=kafka, as sasl.mechanism is {GSSAPI} (Kafka's default)"
        raise UsageError(f"{security.source}: {problem}; give {example}") from None
    except HarnessError as error:
        raise UsageError(f"{security.source}: {error}") from error
    if mechanism == GSSAPI:
        _raise_for_ticket(security)


def _raise_for_ticket(security: Security) -> None:
    """Verify what kafka-python logs in with: the default Kerberos credentials of this process, never a ``keyTab``."""
    try:
        import gssapi  # noqa: PLC0415  (optional)
    except (ImportError, OSError) as error:
        remedy = "needs a package: pip install 'compaction-harness[kerberos]'"
        raise UsageError(f"{security.source}: {GSSAPI} {remedy}") from error
    try:
        owner = gssapi.Credentials(usage="initiate").inquire(mechs=False).name
        principal = security.jaas.get("principal")
        is_other = principal and owner != gssapi.Name(principal, gssapi.NameType.kerberos_principal)
    except gssapi.raw.misc.GSSError as error:
        raise UsageError(
            f"{security.source}: no valid Kerberos ticket: run kinit, or name a keytab in KRB5_CLIENT_KTNAME"
            f" (kafka-python ignores keyTab in {JAAS}): {error}"
        ) from error
    if is_other:
        raise UsageError(f"{security.source}: the Kerberos ticket is of {owner}, and {JAAS} names {principal}")


def _pem_of(security: Security, store: str, *inline: str, has_key: bool) -> str | None:
    """Return a store as PEM, from its ``inline`` properties or its file; None without a store. Raises `UsageError`."""
    values = [value for name in inline if (value := security.properties.get(f"{store}.{name}"))]
    location = security.properties.get(f"{store}.location")
    if len(values) == len(inline) or location is None:
        return "\n".join(values) or None
    file = f"{security.source}: {store}.location {location}"
    kind = security.properties.get(f"{store}.type", "JKS").upper()
    with raised_as(UsageError, file, OSError):
        content = Path(location).read_bytes()
    if kind not in {"PEM", "PKCS12", "JKS"} or content.startswith(JKS_MAGIC):
        raise UsageError(
            f"{file} is of type {kind}, which only Java reads; convert it"
            " (keytool -importkeystore -deststoretype PKCS12 …) and set the type"
        )
    if kind == "PEM":
        return content.decode()
    password = security.properties.get(f"{store}.password")
    # Importing it takes a moment, and few runs need it.
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12  # noqa: PLC0415

    with raised_as(UsageError, f"{file} cannot be opened", ValueError):
        pkcs12 = load_pkcs12(content, password.encode() if password is not None else None)
    # The key's own certificate comes first.
    certificates = [entry.certificate for entry in (pkcs12.cert, *pkcs12.additional_certs) if entry]
    chain = "".join(certificate.public_bytes(Encoding.PEM).decode() for certificate in certificates)
    if not has_key:
        return chain
    if pkcs12.key is None:
        raise UsageError(f"{file} has no key")
    return pkcs12.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode() + chain
