"""Object stores and databases to test against: real servers as processes of this session, on loopback.

s3     moto's server                                  from the development dependencies
azblob Azurite, in node                               installed by scripts/ensure-azurite.sh (make does it)
gs     tests/servers/gcs_server.py, a small stand-in  no public emulator knows the XML API that clients use

Databases to test against are MariaDB and MySQL, started by `tidegate.bench.harness.databases`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import os
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from urllib.parse import urlencode

import hypothesis
import pytest

from tidegate.bench.harness.databases import NAMES, Database, missing, running_database
from tidegate.config.settings import load_settings
from tidegate.storage.store import Store, open_store

# A busy machine breaks no law by a slow example. HYPOTHESIS_PROFILE=long looks further.
_PATIENT = [hypothesis.HealthCheck.too_slow]
hypothesis.settings.register_profile(
    "tests", deadline=None, max_examples=30, derandomize=True, suppress_health_check=_PATIENT
)
hypothesis.settings.register_profile("long", deadline=None, max_examples=1000, suppress_health_check=_PATIENT)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "tests"))

_ROOT = Path(__file__).parents[1]
_AZURITE = "node_modules/azurite/dist/src/blob/main.js"
_START_S = 30.0
BUCKET = "lake"


@dataclass(frozen=True)
class Server:
    """A running object store with the bucket `lake`, and the keys to reach it."""

    scheme: str
    port: int
    keys: dict[str, str]

    def uri(self, prefix: str, bucket: str = BUCKET, **more: str) -> str:
        """The sink URI, as a user writes it."""
        keys = self.keys | {key.replace("_", "-"): value for key, value in more.items()}
        return f"{self.scheme}://{bucket}/{prefix}?{urlencode(keys)}"

    def store(self, prefix: str = "", bucket: str = BUCKET, **more: str) -> Store:
        """Opened the way a changefeed opens it; under a prefix of its own unless one is given."""
        settings = load_settings(
            self.uri(prefix or f"t {uuid.uuid4().hex[:8]}%23/é".replace(" ", "%20"), bucket, **more)
        )
        return open_store(settings.sink_uri, settings.access)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[Server]:
    pytest.importorskip("moto", reason="moto is not installed: make setup")
    port = _free_port()
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with _running(command, port):
        _request(port, "PUT", f"/{BUCKET}", {})
        keys = {"access-key": "test-id", "secret-access-key": "test/secret+key", "region": "us-east-1"}
        yield Server("s3", port, keys | {"endpoint": f"http://127.0.0.1:{port}"})


@pytest.fixture(scope="session")
def azblob_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = Path(sys.prefix, "azurite")
    if not (home / ".ready").exists() or shutil.which("node") is None:
        pytest.skip("Azurite is not installed (npm is missing, or tests were started without make)")
    port, account = _free_port(), "tidegate"
    key = base64.b64encode(hashlib.sha512(b"a key for tests").digest()).decode()
    command = ["node", str(home / _AZURITE), "--inMemoryPersistence", "--silent", "--disableTelemetry"]
    command += ["--skipApiVersionCheck", "--blobHost", "127.0.0.1", "--blobPort", str(port)]
    place = tmp_path_factory.mktemp("azurite")
    with _running(command, port, cwd=place, AZURITE_ACCOUNTS=f"{account}:{key}"):
        _make_container(port, account, key)
        keys = {"account-name": account, "account-key": key, "endpoint": f"http://127.0.0.1:{port}/{account}"}
        yield Server("azblob", port, keys)


@pytest.fixture(scope="session")
def gs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    credentials = tmp_path_factory.mktemp("gcs") / "credentials.json"
    credentials.write_text(
        '{"type": "service_account", "disable_oauth": true, "client_email": "", "private_key": "", '
        '"private_key_id": "", "gcs_base_url": ""}'
    )
    command = [sys.executable, str(_ROOT / "tests" / "servers" / "gcs_server.py"), BUCKET]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            keys = {"credentials-file": str(credentials), "endpoint": f"http://127.0.0.1:{port}"}
            yield Server("gs", port, keys)
        finally:
            process.kill()


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    yield from _database("mariadb", tmp_path_factory)


@pytest.fixture(scope="session")
def mysql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    yield from _database("mysql", tmp_path_factory)


@pytest.fixture(scope="session", params=NAMES)
def database(request: pytest.FixtureRequest) -> Database:
    """Each of the databases in turn."""
    found: Database = request.getfixturevalue(request.param)
    return found


def _database(name: str, places: pytest.TempPathFactory) -> Iterator[Database]:
    if reason := missing(name):
        pytest.skip(reason)
    with running_database(name, places.mktemp(name)) as found:
        yield found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _running(command: list[str], port: int, cwd: Path | None = None, **environment: str) -> Iterator[None]:
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet, cwd=cwd, env=os.environ | environment) as process:
        try:
            _await(process, port)
            yield
        finally:
            process.kill()


def _await(process: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + _START_S
    while time.monotonic() < until:
        assert process.poll() is None, f"{process.args!r} has ended"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise TimeoutError(f"{process.args!r} does not listen")


def _request(port: int, method: str, path: str, headers: dict[str, str]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_START_S)
    connection.request(method, path, headers=headers)
    status = connection.getresponse().status
    connection.close()
    assert status in (200, 201), f"{method} {path}: {status}"


def _make_container(port: int, account: str, key: str) -> None:
    """Azure's own signature, since the client cannot make containers."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    signed = ["PUT", *[""] * 11, *(f"{name}:{value}" for name, value in headers.items())]
    signed += [f"/{account}/{account}/{BUCKET}", "restype:container"]
    digest = hmac.new(base64.b64decode(key), "\n".join(signed).encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {account}:{base64.b64encode(digest).decode()}"
    _request(port, "PUT", f"/{account}/{BUCKET}?restype=container", headers)
