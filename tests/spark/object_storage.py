"""An S3-compatible server on loopback, with a bucket, and the environment that leads to it."""

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.spark.clusters import comes_up
from tests.support.servers import free_port

BUCKET = "s3://history"


@contextmanager
def object_storage(folder: Path) -> Iterator[str]:
    """The address of an empty bucket; processes that are started meanwhile find it too."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    settings = {
        "AWS_ENDPOINT_URL": url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "somebody",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
    }
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with open(folder / "moto.log", "wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
    before = dict(os.environ)
    try:
        assert comes_up(server, port), (folder / "moto.log").read_text()
        with urllib.request.urlopen(urllib.request.Request(f"{url}/history", method="PUT")):
            os.environ.update(settings)
            yield BUCKET
    finally:
        os.environ.clear()
        os.environ.update(before)
        server.kill()
        server.wait()
