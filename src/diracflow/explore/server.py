"""HTTP server on the loopback interface.

Other web sites must not read a density through the user's browser. So the server binds to the
loopback interface, rejects requests for other host names (DNS rebinding), and answers only scripts
of its own page.
"""

import json
import socketserver
import sys
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any

from .explorer import Explorer

ADDRESS = "127.0.0.1"
# Longest accepted request path. That of a view with a hundred components has about 2000 characters.
MAX_ADDRESS = 8192
# Seconds after which an idle connection is closed.
_TIMEOUT = 20
_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Server(ThreadingHTTPServer):
    """Serve one explorer at `url`; port 0 selects a free port."""

    daemon_threads = True  # browsers keep connections open, which would block the shutdown

    def __init__(self, explorer: Explorer, port: int = 0):
        self.explorer = explorer
        # The files of the page by path. No other file is served.
        self.page = {
            f"/{file.name}": (_TYPES[file.name.rpartition(".")[2]], file.read_bytes())
            for file in files(__package__).joinpath("page").iterdir()
        }
        self.page["/"] = self.page["/index.html"]
        try:
            super().__init__((ADDRESS, port), _Handler)
        except OSError as error:
            raise OSError(
                f"Port {port} cannot be used: {error.strerror}. Choose another with `--port`; "
                "`--port 0` selects a free one."
            ) from error

    def server_bind(self) -> None:
        # `HTTPServer.server_bind` also looks up the host name, which may take seconds.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = ADDRESS, self.server_address[1]

    @property
    def url(self) -> str:
        """Address of the page."""
        return f"http://{ADDRESS}:{self.server_port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore connections that the browser dropped; report other errors."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


# Status, content type and content of a response.
Answer = tuple[int, str, bytes]


def _error(status: int, message: str) -> Answer:
    return status, "application/json", json.dumps({"error": message}).encode()


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = _TIMEOUT
    server_version, sys_version = "diracflow", ""

    def do_GET(self) -> None:
        try:
            answer = self._answer()
        except (ValueError, RuntimeError) as error:  # raised by the library for invalid queries
            answer = _error(400, str(error))
        except Exception:
            traceback.print_exc()
            answer = _error(500, "Internal error of diracflow; see the terminal.")
        self._send(*answer)

    def _answer(self) -> Answer:
        named = self.headers.get_all("Host") or []
        known = [f"{name}:{self.server.server_port}" for name in (ADDRESS, "localhost")]
        if len(named) != 1 or named[0].lower() not in known:
            return _error(403, f"This page is only served as {self.server.url}.")
        if len(self.path) > MAX_ADDRESS:
            return _error(414, f"Addresses must have at most {MAX_ADDRESS} characters.")
        path, _, query = self.path.partition("?")
        if path in self.server.page:
            return 200, *self.server.page[path]
        if not path.startswith("/api/"):
            return _error(404, "Not found; the page is at /.")
        if self.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
            return _error(403, "Only the page of the explorer may send this request.")
        name, explorer = path.removeprefix("/api/"), self.server.explorer
        if name in ("picture", "bridge"):
            return 200, "application/octet-stream", getattr(explorer, name)(query)
        if name not in ("certificate", "model"):
            return _error(404, f"Unknown request {name[:40]!r}.")
        found = explorer.model() if name == "model" else explorer.certificate(query)
        return 200, "application/json", json.dumps(found).encode()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer errors found by the base class: malformed requests and unsupported methods."""
        if code == 501:
            self._send(*_error(405, "Only GET is supported."))
        else:
            self._send(*_error(code, message or "Malformed request."))

    def _send(self, status: int, kind: str, content: bytes) -> None:
        self.close_connection = True
        self.send_response(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        if status == 405:
            self.send_header("Allow", "GET")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: each move of a slider would be a line."""
