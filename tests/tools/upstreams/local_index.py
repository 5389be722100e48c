# SPDX-License-Identifier: Apache-2.0
"""A real package index on 127.0.0.1 that can be told to misbehave."""

from __future__ import annotations

import base64
import hashlib
import ssl
import threading
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True)
class Fault:
    """How one answer to a request for a file differs from the right one."""

    status: int | None = None
    #: Close the connection after so many bytes of the body.
    break_after: int | None = None
    #: Stop after so many bytes, but keep the connection open until the index is closed.
    stall_after: int | None = None
    ignore_range: bool = False


@dataclass
class LocalIndex:
    """Serves ``/simple/<project>/`` and ``/files/<name>``; remembers what was asked of it."""

    url: str = ""
    projects: dict[str, dict[str, str]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    #: Used up one a request for a file; when empty, the right answer is given.
    faults: deque[Fault] = field(default_factory=deque)
    #: Status of every page, when not 200.
    page_status: int = 200
    page_kind: str = "text/html"
    #: ``user:password`` that is demanded when set.
    login: str | None = None
    #: Path and Range header of each request.
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    stalled: threading.Event = field(default_factory=threading.Event)
    closing: threading.Event = field(default_factory=threading.Event)

    def add(self, project: str, name: str, data: bytes, *, sha256: str | None = "") -> None:
        """Offer a file; ``sha256`` replaces the hash on the page, None leaves it out."""
        digest = hashlib.sha256(data).hexdigest() if sha256 == "" else sha256
        self.files[name] = data
        link = f"../../files/{name}" + (f"#sha256={digest}" if digest else "")
        self.projects.setdefault(project, {})[name] = link

    def file_requests(self) -> list[tuple[str, str | None]]:
        return [item for item in self.requests if item[0].startswith("/files/")]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    index: LocalIndex

    def do_GET(self) -> None:
        self.index.requests.append((self.path, self.headers.get("Range")))
        if self.index.login is not None:
            wanted = "Basic " + base64.b64encode(self.index.login.encode()).decode()
            if self.headers.get("Authorization") != wanted:
                self._reply(401, b"who are you?", "text/plain")
                return
        kind, _, rest = self.path.lstrip("/").partition("/")
        name = rest.strip("/")
        if kind == "simple" and name in self.index.projects:
            rows = [f'<a href="{href}">{n}</a>' for n, href in self.index.projects[name].items()]
            self._reply(self.index.page_status, "\n".join(rows).encode(), self.index.page_kind)
        elif kind == "files" and name in self.index.files:
            self._file(self.index.files[name])
        else:
            self._reply(404, b"no such thing", "text/plain")

    def _file(self, data: bytes) -> None:
        fault = self.index.faults.popleft() if self.index.faults else Fault()
        if fault.status is not None:
            self._reply(fault.status, b"as told", "text/plain")
            return
        start, status, headers = 0, 200, {}
        wanted = self.headers.get("Range")
        if wanted and not fault.ignore_range:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(data):
                self._reply(416, b"", "text/plain")
                return
            status = 206
            headers = {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"}
        self._head(status, len(data) - start, headers)
        self._body(data[start:], fault)

    def _body(self, body: bytes, fault: Fault) -> None:
        if fault.break_after is not None:
            self.wfile.write(body[: fault.break_after])
            self.close_connection = True
        elif fault.stall_after is not None:
            self.wfile.write(body[: fault.stall_after])
            self.wfile.flush()
            self.index.stalled.set()
            self.index.closing.wait()
            self.close_connection = True
        else:
            self.wfile.write(body)

    def _reply(self, status: int, body: bytes, kind: str) -> None:
        self._head(status, len(body), {"Content-Type": kind})
        self.wfile.write(body)

    def _head(self, status: int, length: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(length), **headers}.items():
            self.send_header(key, value)
        self.end_headers()

    def log_request(self, code: object = "-", size: object = "-") -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # a client that was killed is what some tests are about


@contextmanager
def serve(certificate: Path | None = None) -> Iterator[LocalIndex]:
    """Run an empty index for the duration of the block, over TLS when given a certificate."""
    index = LocalIndex()
    handler = type("Handler", (_Handler,), {"index": index})
    with _Server(("127.0.0.1", 0), handler) as server:
        scheme = "http"
        if certificate is not None:
            scheme = "https"
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        index.url = f"{scheme}://127.0.0.1:{server.server_port}/simple/"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield index
        finally:
            index.closing.set()
            server.shutdown()
            thread.join()
