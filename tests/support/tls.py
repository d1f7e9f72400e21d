"""Certificates for a server and its clients, made on the spot."""

import subprocess
from pathlib import Path
from urllib.parse import urlencode


def server_settings(folder: Path, port: int) -> dict[str, str]:
    """Settings of a server: its TLS port, its certificate, and that clients must present theirs."""
    return {
        "tls-port": str(port),
        "tls-ca-cert-file": str(folder / "authority.pem"),
        "tls-cert-file": str(folder / "server.pem"),
        "tls-key-file": str(folder / "server.key"),
        "tls-auth-clients": "yes",
    }


def client_query(folder: Path) -> str:
    """The query of a client's URL: the authority it trusts, and its own certificate."""
    names = {"ssl_ca_certs": "authority.pem", "ssl_certfile": "client.pem", "ssl_keyfile": "client.key"}
    return "?" + urlencode({option: str(folder / name) for option, name in names.items()})


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
