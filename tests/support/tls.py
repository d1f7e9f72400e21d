"""Certificates for a server and its clients, made on the spot."""

import subprocess
from pathlib import Path


def make_certificates(folder: Path) -> None:
    """`authority.pem`, and `.pem` with `.key` for a server at 127.0.0.1 and for a client, all for a day."""
    new_key = ("-newkey", "rsa:2048", "-nodes")
    _openssl(
        folder, "req", "-x509", *new_key, "-keyout", "authority.key", "-out", "authority.pem",
        "-days", "1", "-subj", "/CN=authority",
    )  # fmt: skip
    (folder / "server.extensions").write_text("subjectAltName=IP:127.0.0.1\n")
    (folder / "client.extensions").write_text("extendedKeyUsage=clientAuth\n")
    for name in ("server", "client"):
        request = ("-keyout", f"{name}.key", "-out", f"{name}.request", "-subj", f"/CN={name}")
        _openssl(folder, "req", *new_key, *request)
        signed_by = ("-CA", "authority.pem", "-CAkey", "authority.key", "-CAcreateserial", "-days", "1")
        files = ("-in", f"{name}.request", "-extfile", f"{name}.extensions", "-out", f"{name}.pem")
        _openssl(folder, "x509", "-req", *files, *signed_by)


def _openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)
