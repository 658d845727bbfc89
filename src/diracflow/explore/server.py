"""HTTP on this machine alone.

Pages of other sites must not read a density through the user's browser. So only the loopback
interface is served, only to requests that name it as their host (a foreign name may have been
pointed here), and answers are for the page's own scripts alone.
"""

import json
import socketserver
import sys
import traceback
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any

from .explorer import Explorer

ADDRESS = "127.0.0.1"
# Longer addresses are refused; that of a view with a hundred components has some two thousand.
LONGEST = 8192
# Seconds that a connection may keep silent.
_PATIENCE = 20
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
    """Serves one explorer at `url` until told to stop."""

    daemon_threads = True  # browsers hold connections open that would keep us from ending

    def __init__(self, explorer: Explorer, port: int = 0):
        self.explorer = explorer
        self.page = _page()
        try:
            super().__init__((ADDRESS, port), _Handler)
        except OSError as error:
            raise OSError(
                f"Port {port} of this machine cannot be served: {error.strerror}. Take another "
                "with `--port`; `--port 0` takes a free one."
            ) from error

    def server_bind(self) -> None:
        # That of `HTTPServer` also asks for the name of the host, which may take seconds.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = ADDRESS, self.server_address[1]

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{ADDRESS}:{self.server_port}/"

    @property
    def hosts(self) -> set[str]:
        """Names under which the page may be asked for."""
        return {f"{name}:{self.server_port}" for name in (ADDRESS, "localhost")}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Browsers drop connections when they have seen enough; other errors are shown."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Refused(Exception):
    """A request that gets a status other than 200."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = _PATIENCE
    server_version, sys_version = "diracflow", ""

    def do_GET(self) -> None:
        try:
            kind, content = self._answer()
        except _Refused as refused:
            self._refuse(refused.status, str(refused))
        except (ValueError, RuntimeError) as error:  # what the library says of bad queries
            self._refuse(400, str(error))
        except Exception:
            traceback.print_exc()
            self._refuse(500, "This is an error of diracflow; its terminal says more.")
        else:
            self._send(200, kind, content)

    def _answer(self) -> tuple[str, bytes]:
        self._require_our_host()
        if len(self.path) > LONGEST:
            raise _Refused(414, f"Addresses have at most {LONGEST} characters.")
        path, _, query = self.path.partition("?")
        if path.startswith("/api/"):
            self._require_our_page()
            return _api(self.server.explorer, path.removeprefix("/api/"), query)
        if path in self.server.page:
            return self.server.page[path]
        raise _Refused(404, "There is nothing here; the page is at /.")

    def _require_our_host(self) -> None:
        named = self.headers.get_all("Host") or []
        if len(named) != 1 or named[0].lower() not in self.server.hosts:
            raise _Refused(403, f"This page is only served as {self.server.url}.")

    def _require_our_page(self) -> None:
        if self.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
            raise _Refused(403, "Only the explorer's own page may ask this.")

    def _refuse(self, status: int, message: str) -> None:
        self._send(status, "application/json", json.dumps({"error": message}).encode())

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Errors that the base class finds: malformed requests, and methods it has no name for."""
        if code == 501:
            self._refuse(405, "Only GET is answered.")
        else:
            self._refuse(code, message or "This request cannot be read.")

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
        """Nothing: every move of a slider would be a line."""


def _api(explorer: Explorer, name: str, query: str) -> tuple[str, bytes]:
    binary: dict[str, Callable[[str], bytes]] = {
        "picture": explorer.picture,
        "bridge": explorer.bridge,
    }
    if name in binary:
        return "application/octet-stream", binary[name](query)
    if name == "certificate":
        return "application/json", json.dumps(explorer.certificate(query)).encode()
    if name == "model":
        return "application/json", json.dumps(explorer.model()).encode()
    raise _Refused(404, f"Nothing is known of {name[:40]!r}.")


def _page() -> dict[str, tuple[str, bytes]]:
    """Files of the page by their paths: nothing else can be asked for."""
    found = {
        f"/{file.name}": (_TYPES[file.name.rpartition(".")[2]], file.read_bytes())
        for file in files(__package__).joinpath("page").iterdir()
    }
    return {**found, "/": found["/index.html"]}
