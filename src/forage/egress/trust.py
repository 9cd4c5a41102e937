"""Which authorities a TLS peer must answer to: the policy's, or the system's, and never the environment's.

Python's own defaults read SSL_CERT_FILE, SSL_CERT_DIR and SSLKEYLOGFILE: whoever sets a variable of the process could read or redirect
what it fetches. So the context is built by hand, from the paths compiled into OpenSSL and the usual places of distributions.
"""

from __future__ import annotations

import ssl
import sys
from pathlib import Path

from forage.egress.policy import EgressPolicy
from forage.errors import InvalidPolicyError

__all__ = ["client_context"]

# Bundles of Debian, Fedora, RHEL, SUSE, Alpine and FreeBSD, macOS; used when OpenSSL was built for another file system.
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/usr/local/share/certs/ca-root-nss.crt",
)


def client_context(policy: EgressPolicy) -> ssl.SSLContext:
    """The context of a session: the policy's own, or one for HTTP/1.1 over TLS 1.2 and later that checks chain and name.

    Raises InvalidPolicyError when ``ca_file`` cannot be read as certificates.
    """
    if policy.ssl_context is not None:
        return policy.ssl_context
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.hostname_checks_common_name = False  # RFC 9110 4.3.4: only subject alternative names count
    context.set_alpn_protocols(["http/1.1"])
    # Python before 3.11.4 asks OpenSSL to take a cut connection for its end; whoever sits on the path could then shorten a page.
    context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
    if policy.ca_file is None:
        _load_system_authorities(context)
        return context
    try:
        context.load_verify_locations(cafile=policy.ca_file)
    except OSError as exc:
        raise InvalidPolicyError("ca_file", "a readable file of PEM certificates") from exc
    return context


def _load_system_authorities(context: ssl.SSLContext) -> None:
    if sys.platform == "win32":
        for store in ("CA", "ROOT"):
            for certificate, encoding, trusted in ssl.enum_certificates(store):
                if encoding == "x509_asn" and (trusted is True or ssl.Purpose.SERVER_AUTH.oid in trusted):
                    context.load_verify_locations(cadata=certificate)
        return
    built_in = ssl.get_default_verify_paths()
    for name in (built_in.openssl_cafile, *_BUNDLES):
        if name and Path(name).is_file():
            context.load_verify_locations(cafile=name)
            break
    if built_in.openssl_capath and Path(built_in.openssl_capath).is_dir():
        context.load_verify_locations(capath=built_in.openssl_capath)
