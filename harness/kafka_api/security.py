"""The login of clients to brokers: a Java client's properties file, translated for every client in use.

The Java client takes the properties as they are; librdkafka and the harness's own connections take translated
settings. Secrets are kept in memory only, and appear in no text that this module returns except clients' settings.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import NamedTemporaryFile

import javaproperties

from harness.errors import UsageError

PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL = "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"
PROTOCOLS = (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL)
PLAIN = "PLAIN"
MECHANISMS = (PLAIN, "SCRAM-SHA-256", "SCRAM-SHA-512")

JAAS = "sasl.jaas.config"
PEM, PKCS12 = "PEM", "PKCS12"
ENDPOINT = "ssl.endpoint.identification.algorithm"
ABOUT_SECURITY = ("security.", "sasl.", "ssl.")
"""Prefixes of the login properties; other properties of the file are not passed on."""

JAAS_OPTION = re.compile(r"""\b(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)')""")


@dataclass(frozen=True)
class Security:
    """The login properties of a properties file. ``source``: the file, for messages."""

    source: str
    properties: Mapping[str, str] = field(repr=False)

    @property
    def protocol(self) -> str:
        """``security.protocol``."""
        return self.properties.get("security.protocol", PLAINTEXT)

    @property
    def mechanism(self) -> str | None:
        """``sasl.mechanism``; None without SASL."""
        return self.properties["sasl.mechanism"] if self.protocol.startswith("SASL") else None

    @property
    def credentials(self) -> tuple[str, str]:
        """User name and password of ``sasl.jaas.config``."""
        options = {name: double or single for name, double, single in JAAS_OPTION.findall(self.properties[JAAS])}
        unescaped = {name: re.sub(r"\\(.)", r"\1", value) for name, value in options.items()}
        return unescaped["username"], unescaped["password"]

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
    def without_files(self) -> Security:
        """The same login with the content of its certificate files, for processes on other hosts."""
        inlined = {"ssl.truststore.certificates": self.trusted, "ssl.keystore.key": self.own}
        others = {
            name: value
            for name, value in self.properties.items()
            if not name.startswith(("ssl.truststore.", "ssl.keystore."))
        }
        return Security(self.source, {**others, **{name: value for name, value in inlined.items() if value}})

    def for_librdkafka(self) -> dict[str, str]:
        """Return the login as librdkafka's properties."""
        config = {"security.protocol": self.protocol}
        if self.mechanism is not None:
            user, password = self.credentials
            config |= {"sasl.mechanism": self.mechanism, "sasl.username": user, "sasl.password": password}
        if self.protocol in {SSL, SASL_SSL}:
            config[ENDPOINT] = "https" if self.verifies_host else "none"
            config |= {"ssl.ca.pem": self.trusted} if self.trusted else {}
            config |= {"ssl.certificate.pem": self.own, "ssl.key.pem": self.own} if self.own else {}
        return config

    def for_brokers(self, listener: str) -> dict[str, str]:
        """Return the broker settings for a listener with this login, without the broker's own key.

        SCRAM's users are created when storage is formatted (KIP-900).
        """
        if self.mechanism is None:
            return {}
        user, password = (value.replace("\\", "\\\\").replace('"', '\\"') for value in self.credentials)
        if self.mechanism == PLAIN:
            module = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}="{password}";'
        else:
            module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        prefix = f"listener.name.{listener.lower()}"
        return {
            "sasl.enabled.mechanisms": self.mechanism,
            f"{prefix}.{self.mechanism.lower()}.sasl.jaas.config": module,
        }

    @property
    def scram_user(self) -> str | None:
        """The argument for formatting storage that creates the user; None where none is needed."""
        if self.mechanism in {None, PLAIN}:
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
                context.load_cert_chain(file.name)
        return context


def read_security(path: Path) -> Security:
    """Return the login of a Java client's properties file.

    Raises `UsageError` with the property that is missing or unsupported; the message contains no values except names of
    protocols, mechanisms and files.
    """
    try:
        with path.open(encoding="utf-8") as file:
            properties = javaproperties.load(file)
    except (OSError, ValueError) as error:
        raise UsageError(f"--command-config {path} cannot be read: {error}") from error
    login_properties = {name: value for name, value in properties.items() if name.startswith(ABOUT_SECURITY)}
    security = Security(str(path), login_properties)
    if security.protocol not in PROTOCOLS:
        raise UsageError(f"{path}: security.protocol is {security.protocol}; give one of {', '.join(PROTOCOLS)}")
    if security.protocol.startswith("SASL"):
        _raise_for_sasl(security)
    if security.protocol.endswith("SSL"):
        _ = security.tls
    return security


def _raise_for_sasl(security: Security) -> None:
    mechanism = security.properties.get("sasl.mechanism")
    if mechanism not in MECHANISMS:
        raise UsageError(f"{security.source}: sasl.mechanism is {mechanism}; give one of {', '.join(MECHANISMS)}")
    try:
        _ = security.credentials
    except KeyError as error:
        problem = f"there is no {JAAS}" if error.args[0] == JAAS else f"{JAAS} names no {error.args[0]}"
        example = '…LoginModule required username="…" password="…";'
        raise UsageError(f"{security.source}: {problem}; give {example}") from None


def _pem_of(security: Security, store: str, *inline: str, has_key: bool) -> str | None:
    """Return the content of a store as PEM, from its ``inline`` properties or from its file; None without a store.

    Raises `UsageError` for a type that only Java can read.
    """
    values = [value for name in inline if (value := security.properties.get(f"{store}.{name}"))]
    location = security.properties.get(f"{store}.location")
    if len(values) == len(inline) or location is None:
        return "\n".join(values) or None
    file, kind = f"{security.source}: {store}.location {location}", security.properties.get(f"{store}.type", "JKS")
    if kind.upper() not in {PEM, PKCS12}:
        raise UsageError(
            f"{file} is of type {kind.upper()}, which only Java reads; convert it"
            " (keytool -importkeystore -deststoretype PKCS12 …) and set the type"
        )
    try:
        content = Path(location).read_bytes()
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror or error}") from error
    if kind.upper() == PEM:
        return content.decode()
    password = security.properties.get(f"{store}.password")
    key, chain = _unpacked(file, content, password.encode() if password is not None else None)
    if has_key and key is None:
        raise UsageError(f"{file} has no key")
    return f"{key}{chain}" if has_key else chain


def _unpacked(file: str, content: bytes, password: bytes | None) -> tuple[str | None, str]:
    """Return the key and the certificates of a PKCS#12 store, as PEM; the key's own certificate comes first."""
    # Importing it takes a moment, and few runs need it.
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12  # noqa: PLC0415

    try:
        store = load_pkcs12(content, password)
    except ValueError as error:
        raise UsageError(f"{file} cannot be opened: {error}") from error
    certificates = ([store.cert] if store.cert else []) + store.additional_certs
    chain = "".join(entry.certificate.public_bytes(Encoding.PEM).decode() for entry in certificates)
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode() if store.key else None
    return key, chain
