"""What is special about stores over HTTP: how their errors are sorted, what is never told, large files, odd servers."""

from __future__ import annotations

import base64
import os
import pickle
import socket
import threading
import time
import tracemalloc
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import pytest

from tidegate.config.settings import load_settings
from tidegate.config.store_keys import read_access
from tidegate.errors import BadSetting, StoreConflict, StoreRefused, StoreUnavailable, TidegateError
from tidegate.executor.segments import FileSlices
from tidegate.executor.spool import Slice
from tidegate.storage.objects import open_object_store
from tidegate.storage.store import Store, open_store

PATH = "shop/orders/437/2026-01-31/CDC00000000000000000001.csv"
SECRET = "sEcReT/+hunter2hunter2hunter2"
MIB = 1 << 20


def ignore(_: int) -> None:
    pass


def segment(tmp_path: Path, data: bytes, name: str = "0-0-0-0.seg") -> str:
    path = tmp_path / name
    path.write_bytes(data)
    return str(path)


def slices(*pieces: Slice) -> FileSlices:
    return FileSlices(pieces)


# -- a server that misbehaves ----------------------------------------------------------------------------------------


class _Rude(BaseHTTPRequestHandler):
    """Answers everything the same way, and tells all it was told."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    behaviour: Callable[[_Rude], None]
    seen: list[str]

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _any(self) -> None:
        self.seen.append(f"{self.command} {self.path}")
        if length := int(self.headers.get("Content-Length", 0)):
            self.rfile.read(length)
        type(self).behaviour(self)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _any  # noqa: N815


def says(status: int, code: str = "", message: str = "no") -> Callable[[Any], None]:
    def behave(handler: BaseHTTPRequestHandler) -> None:
        said = f"{message} {handler.path} {dict(handler.headers)}".replace("&", "&amp;")
        body = f"<Error><Code>{code}</Code><Message>{said}</Message></Error>".encode() if code else b""
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(body)

    return behave


def cuts_off(handler: Any) -> None:
    handler.send_response(200)
    for name, value in (("ETag", '"1"'), ("Last-Modified", "Sat, 31 Jan 2026 12:00:00 GMT"), ("Content-Length", "999")):
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(b"half")
    handler.wfile.flush()
    handler.close_connection = True


def hangs(handler: Any) -> None:
    """Says nothing while the client waits; hanging up in the end would be another kind of failure."""
    time.sleep(60)
    handler.close_connection = True


def hangs_up(handler: Any) -> None:
    handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True


@pytest.fixture
def rude() -> Iterator[Callable[..., tuple[Store, list[str]]]]:
    """A store whose server behaves as given, and the requests that it saw."""
    servers: list[ThreadingHTTPServer] = []

    def make(behaviour: Callable[[Any], None], scheme: str = "s3") -> tuple[Store, list[str]]:
        seen: list[str] = []
        handler = type("Handler", (_Rude,), {"behaviour": staticmethod(behaviour), "seen": seen})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        servers.append(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return _opened(scheme, server.server_port), seen

    yield make
    for server in servers:
        server.shutdown()
        server.server_close()


def _opened(scheme: str, port: int) -> Store:
    endpoint = f"http://127.0.0.1:{port}"
    sas = f"sv=2021-08-06&ss=b&sp=rw&sig={SECRET.replace('/', '%2F').replace('+', '%2B')}"
    place, pair = ("endpoint", endpoint), (("access-key", "myid"), ("secret-access-key", SECRET))
    keys = {
        "s3": (place, *pair, ("session-token", SECRET)),
        "s3 without a token": (place, *pair),
        "s3 without keys": (place,),
        "azblob": (place, ("account-name", "me"), ("sas-token", sas)),
    }[scheme]
    return open_object_store(f"{scheme.split()[0]}://lake/p", read_access(scheme.split()[0], dict(keys))[0], 0.5)


def failures(store: Store, tmp_path: Path) -> list[TidegateError]:
    """What every operation raises."""
    found = []
    place = segment(tmp_path, b"data")
    for act in (
        lambda: store.create(PATH, b"", slices((place, 0, 4)), ignore),
        lambda: store.create_bytes(PATH, b"x"),
        lambda: store.put(PATH, b"x"),
        lambda: store.swap(PATH, b"x", '"1"\n'),
        lambda: store.get(PATH),
        lambda: store.get_range(PATH, 0, 10),
        lambda: list(store.list("")),
        lambda: store.prepare(),
    ):
        with pytest.raises(TidegateError) as caught:
            act()
        found.append(caught.value)
    return found


@pytest.mark.parametrize("scheme", ["s3", "azblob"])
@pytest.mark.parametrize(
    ("behaviour", "kind", "sentence"),
    [
        (says(403, "AccessDenied"), StoreRefused, "access is denied; check the keys"),
        (says(403), StoreRefused, "access is denied; check the keys"),
        (says(401, "NoAuth"), StoreRefused, "access is denied; check the keys"),
        (says(404, "NoSuchBucket"), StoreRefused, "does not exist; make it, or correct the sink URI"),
        (says(404, "ContainerNotFound"), StoreRefused, "does not exist; make it, or correct the sink URI"),
        (says(400, "AuthorizationHeaderMalformed"), StoreRefused, "is in another region; set region"),
        (says(400, "ExpiredToken"), StoreRefused, "is not valid any more; give a fresh one"),
        (says(400, "KeyTooLongError"), StoreRefused, "the store refuses the request"),
        (says(501, "NotImplemented"), StoreRefused, "the store refuses the request"),
        (says(400, "RequestTimeout"), StoreUnavailable, "400 RequestTimeout"),
        (says(409, "ConditionalRequestConflict"), StoreUnavailable, "409 ConditionalRequestConflict"),
        (says(429), StoreUnavailable, "the store answered 429"),
        (says(500, "InternalError"), StoreUnavailable, "500 InternalError"),
        (says(503, "SlowDown"), StoreUnavailable, "503 SlowDown"),
        (says(504), StoreUnavailable, "504"),
        (hangs_up, StoreUnavailable, ""),
    ],
)
def test_an_error_is_sorted_by_what_to_do_next_and_tells_no_secret(
    rude: Callable[..., tuple[Store, list[str]]],
    tmp_path: Path,
    scheme: str,
    behaviour: Callable[[Any], None],
    kind: type[TidegateError],
    sentence: str,
) -> None:
    store, seen = rude(behaviour, scheme)
    found = failures(store, tmp_path)
    assert [type(error) for error in found] == [kind] * len(found)
    assert all(sentence in str(error) for error in found), found
    assert all(PATH in str(error) for error in found[:6]), "each names its object"
    assert_no_secret(found)
    assert len(seen) <= len(found) + 2, "nothing is tried twice"


def assert_no_secret(errors: list[TidegateError]) -> None:
    for error in errors:
        assert error.__cause__ is None
        assert error.__suppress_context__, "what the client said must not be printed as the cause"
        for part in (SECRET, "hunter2", "sig=s", "Credential=m"):
            assert part not in str(error), str(error)


def test_a_read_that_is_cut_off_may_pass(rude: Callable[..., tuple[Store, list[str]]]) -> None:
    store, _ = rude(cuts_off)
    with pytest.raises(StoreUnavailable, match=r"the answer of http://.* was cut off"):
        store.get(PATH)


def test_a_server_that_does_not_answer_is_given_up(rude: Callable[..., tuple[Store, list[str]]]) -> None:
    store, seen = rude(hangs)
    with pytest.raises(StoreUnavailable, match="did not answer in time"):  # to wait longer gives another sentence
        store.create_bytes(PATH, b"x")
    assert len(seen) == 1


@pytest.mark.parametrize("scheme", ["s3", "azblob"])
def test_a_server_that_is_not_there_may_come_back(tmp_path: Path, scheme: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        found = failures(_opened(scheme, port), tmp_path)
    assert {type(error) for error in found} == {StoreUnavailable}
    assert all(f"the connection to http://127.0.0.1:{port}" in str(error) for error in found), found
    assert_no_secret(found)


def test_a_store_that_ignores_conditions_is_refused(rude: Callable[..., tuple[Store, list[str]]]) -> None:
    def accepts(handler: Any) -> None:
        body = b"<ListBucketResult></ListBucketResult>" if handler.command == "GET" else b""
        handler.send_response(200)
        handler.send_header("ETag", '"1"')
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    store, seen = rude(accepts)
    with pytest.raises(StoreRefused, match="ignores the conditions of puts"):
        store.prepare()
    assert seen[-1].startswith("DELETE ")


# -- real servers ----------------------------------------------------------------------------------------------------


@pytest.fixture(params=["s3", "gs", "azblob"])
def server(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(f"{request.param}_server")


def test_a_bucket_that_is_not_there_is_refused(server: Any, tmp_path: Path) -> None:
    store, place = server.store("p", bucket="no-such-bucket"), segment(tmp_path, b"data")
    for act in (
        lambda: store.create(PATH, b"", slices((place, 0, 4)), ignore),
        lambda: store.create_bytes(PATH, b"x"),
        lambda: store.put(PATH, b"x"),
        lambda: store.get(PATH),
        lambda: list(store.list("")),
        lambda: store.prepare(),
    ):
        with pytest.raises(StoreRefused, match="does not exist; make it, or correct the sink URI"):
            act()


def test_wrong_keys_are_refused(azblob_server: Any, tmp_path: Path) -> None:
    wrong = base64.b64encode(b"x" * 64).decode()
    for error in failures(azblob_server.store("p", account_key=wrong), tmp_path):
        assert isinstance(error, StoreRefused)
        assert "access is denied; check the keys" in str(error)
        assert wrong not in str(error)


@pytest.mark.parametrize("name", ["a\tb", "a\x7fb", "a\nb", "a//b", "a/./b", "\udc80"])
def test_a_name_that_the_client_cannot_write_is_refused_with_a_remedy(server: Any, name: str) -> None:
    with pytest.raises(StoreRefused, match=r"cannot be a name on .*use-table-id-as-path"):
        server.store("p").put(name, b"x")


def test_azure_would_take_a_backslash_for_a_slash(azblob_server: Any, s3_server: Any) -> None:
    with pytest.raises(StoreRefused, match="a backslash"):
        azblob_server.store("p").put("a\\b", b"x")
    store = s3_server.store()
    store.put("a\\b", b"x")
    assert [path for path, _ in store.list("")] == ["a\\b"]


def test_two_prefixes_of_a_bucket_do_not_see_each_other(server: Any) -> None:
    one, other, root = server.store("iso/a"), server.store("iso/a%20b"), server.store("iso")
    one.put("x", b"1")
    other.put("y", b"2")
    assert ([*one.list("")], [*other.list("")]) == ([("x", 1)], [("y", 1)])
    assert sorted(root.list("")) == [("a b/y", 1), ("a/x", 1)]


def test_a_large_file_goes_in_parts_and_is_compared_by_content(s3_server: Any, tmp_path: Path) -> None:
    store, size = s3_server.store("large"), 65 * MIB + 3
    data = os.urandom(MIB) * 66
    place = segment(tmp_path, data)
    two = slices((place, 5, 40 * MIB), (place, 40 * MIB + 5, size - 40 * MIB - 5))
    beats: list[int] = []
    store.create(PATH, b"head,", two, beats.append)
    assert len(beats) >= 9, "every part announces itself"
    assert store.size(PATH) == size
    store.create(PATH, b"head,", two, ignore)
    with pytest.raises(StoreConflict, match="exists with other content"):
        store.create(PATH, b"HEAD,", two, ignore)
    assert store.get_range(PATH, 0, 10) == b"head," + data[5:10]
    assert store.get_range(PATH, size - 4, 9) == data[size - 4 : size]


def test_a_large_file_that_is_cancelled_leaves_no_object_and_no_parts(s3_server: Any, tmp_path: Path) -> None:
    store, data = s3_server.store("cancelled"), bytes(66 * MIB)
    beats: list[int] = []

    class GivenUp(Exception):
        pass

    def cancel(size: int) -> None:
        beats.append(size)
        if len(beats) == 5:
            assert b"<UploadId>" in _uploads(s3_server)
            raise GivenUp

    # The client may report a part that was on its way when the upload was aborted instead of the cancellation.
    with pytest.raises((GivenUp, StoreUnavailable)):
        store.create(PATH, b"", slices((segment(tmp_path, data), 0, len(data))), cancel)
    assert len(beats) == 5
    assert store.size(PATH) is None
    assert b"<UploadId>" not in _uploads(s3_server)


def _uploads(server: Any) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/lake?uploads") as answer:
        return bytes(answer.read())


def test_a_file_is_in_memory_once(s3_server: Any, tmp_path: Path) -> None:
    store, data = s3_server.store("memory"), bytes(16 * MIB)
    one = slices((segment(tmp_path, data), 0, len(data)))
    del data
    tracemalloc.start()
    try:
        store.create(PATH, b"", one, ignore)
        assert tracemalloc.get_traced_memory()[1] < 17 * MIB
    finally:
        tracemalloc.stop()


def test_prepare_removes_what_a_killed_process_left_and_leaves_nothing(server: Any) -> None:
    store = server.store()
    store.put("_tidegate/tmp/old", b"")
    store.put("_tidegate/journal/1", b"keep")
    store.prepare()
    assert [path for path, _ in store.list("")] == ["_tidegate/journal/1"]


def test_a_storage_class_goes_with_every_object(s3_server: Any, tmp_path: Path) -> None:
    store = s3_server.store("classes", storage_class="STANDARD_IA", sse="AES256")
    store.put("a", b"1")
    store.create("b", b"", slices((segment(tmp_path, b"data"), 0, 4)), ignore)
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "us-east-1"}
    client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{s3_server.port}", **keys)
    for name in ("a", "b"):
        found = client.head_object(Bucket="lake", Key=f"classes/{name}")
        assert (found["StorageClass"], found["ServerSideEncryption"]) == ("STANDARD_IA", "AES256")


def test_keys_of_the_uri_do_not_mix_with_those_of_the_environment(
    rude: Callable[..., tuple[Store, list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"):
        monkeypatch.setenv(f"AWS_{name}", "of-the-environment")
    sent: list[str] = []

    def notes(handler: Any) -> None:
        sent.append(str(handler.headers))
        says(403)(handler)

    store, _ = rude(notes, "s3 without a token")
    with pytest.raises(StoreRefused):
        store.get(PATH)
    assert "Credential=myid/" in sent[0]
    assert "x-amz-security-token" not in sent[0]
    assert "of-the-environment" not in sent[0]


def test_keys_come_from_the_environment_if_the_uri_has_none(
    rude: Callable[..., tuple[Store, list[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        monkeypatch.setenv(f"AWS_{name}", "of-the-environment")
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    sent: list[str] = []

    def notes(handler: Any) -> None:
        sent.append(str(handler.headers))
        says(403)(handler)

    store, _ = rude(notes, "s3 without keys")
    with pytest.raises(StoreRefused):
        store.get(PATH)
    assert "Credential=of-the-environment/" in sent[0]


def test_a_credentials_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    settings = load_settings(f"gs://lake/p?credentials-file={tmp_path}/none.json")
    with pytest.raises(BadSetting, match=rf"gs://lake/p cannot be opened: .*No such file.*{tmp_path}/none.json"):
        open_store(settings.sink_uri, settings.access)


def test_one_sink_has_one_client_in_a_process(s3_server: Any) -> None:
    settings = load_settings(s3_server.uri("same"))
    again = pickle.loads(pickle.dumps(settings))
    assert open_store(settings.sink_uri, settings.access) is open_store(again.sink_uri, again.access)


@pytest.mark.parametrize(
    ("style", "endpoint", "by_host"),
    [("true", "https://store:9000", "false"), ("false", "https://lake.store:9000", "true")],
)
def test_the_bucket_stands_in_the_path_or_in_the_host(style: str, endpoint: str, by_host: str) -> None:
    settings = load_settings(
        f"s3://lake/p?endpoint=https://store:9000&force-path-style={style}&access-key=a&secret-access-key=b"
    )
    config = vars(open_store(settings.sink_uri, settings.access))["_client"].config
    assert (config["endpoint"], config["virtual_hosted_style_request"]) == (endpoint, by_host)
