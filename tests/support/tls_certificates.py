"""Certificates for tests of clusters with TLS: one that signs itself, for all roles."""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def written(folder: Path) -> tuple[Path, Path]:
    """Certificate and key as files in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "dpdist-test")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "certificate.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    pem, form, none = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "key.pem").write_bytes(key.private_bytes(pem, form, none))
    return folder / "certificate.pem", folder / "key.pem"


def environment(certificate: Path, key: Path) -> dict[str, str]:
    """Dask's variables for clients that use them."""
    return {
        f"DASK_{name.upper().replace('.', '__').replace('-', '_')}": file
        for name, file in settings(certificate, key).items()
    }


def settings(certificate: Path, key: Path) -> dict[str, str]:
    """The same for Dask's configuration of a running process."""
    files = {"ca-file": certificate, "client.cert": certificate, "client.key": key}
    return {f"distributed.comm.tls.{name}": str(file) for name, file in files.items()}
