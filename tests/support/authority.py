"""Certificates of a private authority, good and bad, and server contexts that present them."""

from __future__ import annotations

import datetime
import ssl
import tempfile
from functools import cache
from ipaddress import ip_address
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

__all__ = ["authority", "server_context", "trusted_by"]


@cache
def authority(name: str = "good") -> trustme.CA:
    """An authority, one for each name; keys take a while to make."""
    return trustme.CA(organization_name=f"tests: {name}")


def server_context(*names: str, ca: trustme.CA | None = None, expired: bool = False, self_signed: bool = False) -> ssl.SSLContext:
    """What a server presents for the host names and addresses in ``names``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    issuer = trustme.CA(organization_name="nobody") if self_signed else ca or authority()
    if expired:
        yesterday = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
        issuer.issue_cert(*names, not_before=yesterday - datetime.timedelta(days=30), not_after=yesterday).configure_cert(context)
        return context
    try:
        issuer.issue_cert(*names).configure_cert(context)
    except UnicodeError:  # names that are in use and that IDNA 2008 does not have, such as _dmarc.example
        _load(context, _issue(issuer, names))
    return context


def _issue(issuer: trustme.CA, names: tuple[str, ...]) -> bytes:
    """Key and certificate as PEM, for names of any form."""
    issuer_key = serialization.load_pem_private_key(issuer.private_key_pem.bytes(), None)
    issuer_cert = x509.load_pem_x509_certificate(issuer.cert_pem.bytes())
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(issuer_cert.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=True)
        .sign(issuer_key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    return private + certificate.public_bytes(serialization.Encoding.PEM)


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _load(context: ssl.SSLContext, pem: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name)


def trusted_by(folder: Path, ca: trustme.CA | None = None) -> str:
    """Path of a file in ``folder`` with the authority's certificate, for ``ca_file``."""
    path = folder / "authority.pem"
    (ca or authority()).cert_pem.write_to_path(str(path))
    return str(path)
