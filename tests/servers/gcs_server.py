"""A small stand-in for Google Cloud Storage: the part of its XML API that object store clients use, in memory.

Objects have generations; puts and copies keep `x-goog-if-generation-match`; reads keep `Range`; listings have pages;
large objects come in parts. The public
emulators speak the JSON API and do not know these requests. Started as `python gcs_server.py BUCKET`; the port is
printed. With the word `careless` behind it, copies ignore their condition.
"""

from __future__ import annotations

import sys
import threading
import time
import uuid
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

PAGE = 100


class Bucket:
    def __init__(self, name: str) -> None:
        self.name, self.lock = name, threading.Lock()
        self.objects: dict[str, tuple[int, bytes, float]] = {}
        self.generation = int(time.time() * 1_000_000)
        self.uploads: dict[str, dict[int, bytes]] = {}  # parts by the id of their upload


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    bucket: Bucket

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _fail(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code><Message>{code} here.</Message></Error>".encode())

    def _name(self) -> str | None:
        """The object; None after the answer that there is no such bucket."""
        bucket, _, name = urlsplit(self.path).path.lstrip("/").partition("/")
        if unquote(bucket) != self.bucket.name:
            self._fail(404, "NoSuchBucket")
            return None
        return unquote(name)

    def _query(self) -> dict[str, str]:
        return {key: values[0] for key, values in parse_qs(urlsplit(self.path).query, keep_blank_values=True).items()}

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        name, query = self._name(), self._query()
        if name is None:
            return
        if "uploads" in query:
            upload = uuid.uuid4().hex
            self.bucket.uploads[upload] = {}
            said = f"<UploadId>{upload}</UploadId>"
            self._answer(200, f"<InitiateMultipartUploadResult>{said}</InitiateMultipartUploadResult>".encode())
            return
        parts = self.bucket.uploads.pop(query["uploadId"])
        generation = self._store(name, b"".join(data for _, data in sorted(parts.items())))
        said = f'<ETag>"{generation:x}"</ETag>'
        answer = f"<CompleteMultipartUploadResult>{said}</CompleteMultipartUploadResult>".encode()
        self._answer(200, answer, x_goog_generation=str(generation))

    def _store(self, name: str, data: bytes) -> int:
        with self.bucket.lock:
            self.bucket.generation += 1
            self.bucket.objects[name] = self.bucket.generation, data, time.time()
            return self.bucket.generation

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        name, query = self._name(), self._query()
        if name is None:
            return
        if "uploadId" in query:
            self.bucket.uploads[query["uploadId"]][int(query["partNumber"])] = data
            self._answer(200, ETag=f'"{query["partNumber"]}"')
            return
        if source := self.headers.get("x-goog-copy-source"):
            found = self.bucket.objects.get(unquote(source).partition("/")[2])
            if found is None:
                self._fail(404, "NoSuchKey")
                return
            data = found[1]
        wanted = self.headers.get("x-goog-if-generation-match")
        if source and "careless" in sys.argv:
            wanted = None
        with self.bucket.lock:
            there = self.bucket.objects.get(name, (0, b"", 0.0))[0]
            if wanted is not None and int(wanted) != there:
                self._fail(412, "PreconditionFailed")
                return
            self.bucket.generation += 1
            generation = self.bucket.generation
            self.bucket.objects[name] = generation, data, time.time()
        self._answer(200, ETag=f'"{generation:x}"', x_goog_generation=str(generation))

    def do_GET(self) -> None:
        name = self._name()
        if name is None:
            return
        if not name:
            self._list()
            return
        found = self.bucket.objects.get(name)
        if found is None:
            self._fail(404, "NoSuchKey")
            return
        generation, data, written = found
        headers = {"ETag": f'"{generation:x}"', "x_goog_generation": str(generation)}
        headers |= {"Last_Modified": formatdate(written, usegmt=True), "Content_Type": "application/octet-stream"}
        span = self.headers.get("Range")
        if span is None:
            self._answer(200, data, Content_Length=str(len(data)), **headers)
            return
        first, _, last = span.removeprefix("bytes=").partition("-")
        part = data[int(first) : int(last or len(data)) + 1]
        if not part:
            self._fail(416, "InvalidRange")
            return
        self._answer(206, part, Content_Range=f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}", **headers)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        name, query = self._name(), self._query()
        if name is None:
            return
        if "uploadId" in query:
            self.bucket.uploads.pop(query["uploadId"], None)
            self._answer(204)
            return
        with self.bucket.lock:
            found = self.bucket.objects.pop(name, None)
        if found is None:
            self._fail(404, "NoSuchKey")
        else:
            self._answer(204)

    def _list(self) -> None:
        query = self._query()
        with self.bucket.lock:
            names = sorted(name for name in self.bucket.objects if name.startswith(query.get("prefix", "")))
            names = [name for name in names if name > query.get("continuation-token", "")]
            found = [(name, *self.bucket.objects[name]) for name in names[:PAGE]]
        contents = "".join(
            f"<Contents><Key>{escape(name)}</Key><Generation>{generation}</Generation><Size>{len(data)}</Size>"
            f'<ETag>"{generation:x}"</ETag><LastModified>'
            f"{time.strftime('%Y-%m-%dT%H:%M:%S.000Z', time.gmtime(written))}</LastModified></Contents>"
            for name, generation, data, written in found
        )
        more = f"<NextContinuationToken>{escape(names[PAGE - 1])}</NextContinuationToken>" if len(names) > PAGE else ""
        self._answer(200, f"<ListBucketResult>{contents}{more}</ListBucketResult>".encode())


if __name__ == "__main__":
    Handler.bucket = Bucket(sys.argv[1])
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    print(server.server_port, flush=True)
    server.serve_forever()
