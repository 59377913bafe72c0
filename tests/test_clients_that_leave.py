"""The small servers of the kit print no traceback when a client leaves in the middle of a request or an answer."""

from __future__ import annotations

import json
import runpy
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple, TypeAlias
from urllib.parse import urlsplit

import pytest

from tests.support.eventually import eventually_blocking
from tests.support.slow import slow_but
from tests.support.slow_client import leave
from transports.surfaces.cli import main
from transports.testing.plugin import serve_pages

LARGE = 20_000_000
COLLECTOR = Path(__file__).parents[1] / "examples" / "observability" / "collector.py"


class Page(NamedTuple):
    """A page of a server, and the headers of a request for it."""

    address: str
    headers: dict[str, str]


#: Serves a large page, for which it has an empty folder.
Serving: TypeAlias = Callable[[Path], AbstractContextManager[Page]]


@contextmanager
def new_app(folder: Path) -> Iterator[Page]:
    assert main(["init", "app", str(folder / "notes")]) == 0
    server = runpy.run_path(str(folder / "notes" / "serve.py"))
    (folder / "notes" / "web" / "large.bin").write_bytes(bytes(LARGE))
    with server["serve"]() as address:
        yield Page(f"{address}large.bin", {})


@contextmanager
def export_of_a_new_app(folder: Path) -> Iterator[Page]:
    assert main(["init", "app", str(folder / "notes")]) == 0
    server = runpy.run_path(str(folder / "notes" / "serve.py"))
    with server["serve"]() as address:
        with urllib.request.urlopen(f"{address}exports", bytes(server["MAX_BYTES"]), timeout=10) as answer:
            export = json.load(answer)
        yield Page(f"{address}{export['path'][1:]}", {"Authorization": f"Bearer {export['token']}"})


@contextmanager
def page_beside_a_test(folder: Path) -> Iterator[Page]:
    page = folder / "page.html"
    page.write_bytes(bytes(LARGE))
    with serve_pages() as address_of:
        yield Page(address_of(page), {})


@contextmanager
def collector_of_telemetry(_: Path) -> Iterator[Page]:
    pytest.importorskip("opentelemetry.proto", reason="pip install 'abp-transports[otel]'")
    with runpy.run_path(str(COLLECTOR))["collecting"](print, print) as address:
        yield Page(f"{address}/v1/traces", {})


def is_answering() -> bool:
    """Return whether a server in this process still has a client."""
    return any("process_request" in thread.name for thread in threading.enumerate())


@pytest.mark.parametrize(
    "serving",
    slow_but([new_app, export_of_a_new_app, page_beside_a_test, collector_of_telemetry], new_app, page_beside_a_test),
    ids=lambda one: one.__name__,
)
def test_disconnecting_clients_cause_no_traceback(
    serving: Serving, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(tmp_path) as (address, headers):
        path = urlsplit(address).path
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        for reset in (True, False):
            leave(address, f"GET {path} HTTP/1.1\r\n{head}\r\n", after=1, reset=reset)
            leave(address, f"GET {path} HTTP/1.1\r\n{head}", reset=reset)
            leave(address, f"POST {path} HTTP/1.1\r\nContent-Length: 9\r\n\r\nhalf", reset=reset)
        with socket.create_connection((urlsplit(address).hostname, urlsplit(address).port), timeout=10) as client:
            client.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert client.recv(1000).startswith(b"HTTP/1.")  # it answers the next one, so it met those before
        eventually_blocking(lambda: not is_answering(), what="the end of all answers")
    assert "Traceback" not in capsys.readouterr().err


def test_internal_server_error_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with new_app(tmp_path) as (address, _):
        leave(address, "POST /exports HTTP/1.1\r\nContent-Length: many\r\n\r\n")
        eventually_blocking(lambda: "invalid literal for int()" in capsys.readouterr().err, what="the error")
