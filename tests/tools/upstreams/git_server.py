# SPDX-License-Identifier: Apache-2.0
"""git's own smart HTTP server on 127.0.0.1, open or with a password."""

from __future__ import annotations

import base64
import os
import subprocess
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass
class GitServer:
    """Serves every repository below ``root``; ``requests`` are the paths asked for."""

    root: Path
    url: str = ""
    #: ``user:password`` that is demanded when set.
    login: str | None = None
    requests: list[str] = field(default_factory=list)


class _Handler(BaseHTTPRequestHandler):
    server_state: GitServer

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        state = self.server_state
        state.requests.append(self.path)
        if state.login is not None:
            wanted = "Basic " + base64.b64encode(state.login.encode()).decode()
            if self.headers.get("Authorization") != wanted:
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="git"')
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self._pass_on(self._backend(body))

    def _backend(self, body: bytes) -> bytes:
        path, _, query = self.path.partition("?")
        env = {
            "PATH": os.environ["PATH"],
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_PROJECT_ROOT": str(self.server_state.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
        }
        command = ["git", "http-backend"]
        return subprocess.run(command, input=body, env=env, check=False, capture_output=True).stdout

    def _pass_on(self, answer: bytes) -> None:
        head, _, body = answer.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for key, value in fields.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: object = "-", size: object = "-") -> None:
        pass


@contextmanager
def serve_git(root: Path) -> Iterator[GitServer]:
    """Serve the repositories below ``root`` for the duration of the block."""
    state = GitServer(root)
    handler = type("Handler", (_Handler,), {"server_state": state})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        state.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()
