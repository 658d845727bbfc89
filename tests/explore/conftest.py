import threading
import urllib.error
import urllib.request

import pytest

from diracflow.explore.explorer import Explorer
from diracflow.explore.server import Server


@pytest.fixture(scope="package")
def server(trained):
    """The page of the shared density, served on a free port."""
    # The warning about starts outside the training law is raised once per density, so this density
    # must not be shared with other tests.
    own = trained.with_provenance()
    with Server(Explorer(own, title="benes")) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        yield served
        served.shutdown()


@pytest.fixture
def ask(server):
    """Return a function that sends a request and returns status, headers and body."""

    def call(path, method="GET", host=None, **headers):
        if host is not None:
            headers["Host"] = host
        request = urllib.request.Request(server.url + path, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=280) as reply:
                return reply.status, reply.headers, reply.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read()

    return call
