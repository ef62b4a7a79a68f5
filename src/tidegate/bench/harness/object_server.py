"""An S3 server of a benchmark's own: moto's, as a process on loopback that ends with the benchmark, however that ends.

It keeps objects in memory. `save` writes all of them to a directory, from which `restore` takes them into another one.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from tidegate.errors import BadSetting, TidegateError
from tidegate.storage.store import Store

FILE, S3 = "file", "s3"  # where a benchmark lands: a directory, or this server
_BUCKET = "lake"
_START_S = 60.0
_POLL_S = 0.05


@dataclass(frozen=True)
class S3Server:
    """A running server with one bucket."""

    port: int

    def uri(self, prefix: str) -> str:
        """The sink URI, with the keys to reach it."""
        keys = {"access-key": "bench", "secret-access-key": "bench-secret", "region": "us-east-1"}
        return f"s3://{_BUCKET}/{prefix}?{urlencode(keys | {'endpoint': f'http://127.0.0.1:{self.port}'})}"


@contextlib.contextmanager
def s3_server() -> Iterator[S3Server]:
    if importlib.util.find_spec("moto") is None:
        raise BadSetting("--store s3 needs moto's server: pip install 'moto[server]'")
    port = _free_port()
    command = [sys.executable, "-W", "ignore", "-c", f"from {__name__} import main; main({port}, {os.getpid()})"]
    quiet = subprocess.DEVNULL
    # In a session of its own: Ctrl-C ends the benchmark, which then still needs the server.
    with subprocess.Popen(command, stdout=quiet, stderr=quiet, start_new_session=True) as process:
        try:
            _await(process, port)
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_START_S)
            connection.request("PUT", f"/{_BUCKET}")
            if connection.getresponse().status != 200:
                raise TidegateError("moto's server has made no bucket")
            connection.close()
            yield S3Server(port)
        finally:
            process.kill()


def main(port: int, parent: int) -> None:
    """The process: serves until its parent is gone."""
    from moto.server import main as serve

    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    serve(["-H", "127.0.0.1", "-p", str(port)])


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_S)
    os._exit(0)


def save(store: Store, place: Path) -> None:
    """All objects as files of a new directory."""
    for path, _ in store.list(""):
        file = place / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(store.get(path) or b"")


def restore(store: Store, place: Path) -> None:
    """What `save` has written, as objects again."""
    for file in place.rglob("*"):
        if file.is_file():
            store.put(file.relative_to(place).as_posix(), file.read_bytes())


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _await(process: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(_POLL_S)
    raise TidegateError(f"moto's server does not listen (exit code {process.poll()})")
