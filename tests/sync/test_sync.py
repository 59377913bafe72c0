"""The blocking API: the same names and signatures, and what is its own: threads, Ctrl-C, fork, exit."""

from __future__ import annotations

import asyncio
import errno
import gc
import inspect
import json
import logging
import re
import threading
import time
import traceback
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, suppress
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import transports
import transports.sync
from tests.support.eventually import eventually
from tests.support.rows import each_row
from transports import (
    ABPError,
    BinaryData,
    CallTimeout,
    CapabilityError,
    Disconnected,
    ElicitationRequest,
    MemoryTransport,
    Notification,
    Progress,
    UsageError,
    artifacts,
    batch,
)
from transports.artifacts import Retention, Scope
from transports.memory import Handler
from transports.protocol.binary import LocalFile
from transports.session import _dispatch as event_dispatch
from transports.session._events import CallFinished, CallStarted, Event
from transports.sync import (
    CallHandle,
    LocalStore,
    NoneStore,
    Router,
    Session,
    batch as blocking_batch,
    connect,
    open_store,
)
from transports.sync._bridge import Background
from transports.testing import Call

App = Callable[..., Session]


async def echo(params: Mapping[str, object], call: Call) -> object:
    await call.progress(percentage=50, stage="half")
    return {"given": {key: type(value).__name__ for key, value in params.items()}, "document": _content(params)}


def _content(params: Mapping[str, object]) -> object:
    binary = params.get("file")
    if not isinstance(binary, BinaryData):
        return None
    content = binary.content
    return {"content": content.path.read_bytes() if isinstance(content, LocalFile) else content, "mimeType": "a/b"}


async def forever(params: Mapping[str, object], call: Call) -> object:
    await call.notify("begun")
    await asyncio.sleep(3600)
    return None


async def ask(params: Mapping[str, object], call: Call) -> object:
    return {"answer": (await call.elicit("elicitation/input", {"message": "Name?"}))["data"]["value"]}


async def refuse(params: Mapping[str, object], call: Call) -> object:
    raise CapabilityError("not today", code="PERMISSION_DENIED")


HANDLERS: Mapping[str, Handler] = {"echo": echo, "forever": forever, "ask": ask, "refuse": refuse}


@pytest.fixture
def app_of(tmp_path: Path) -> App:
    def make(transport: MemoryTransport | None = None, **options: Any) -> Session:
        return connect("memory:", transport=transport or MemoryTransport(HANDLERS), store=tmp_path / "out", **options)

    return make


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """No thread survives its session. Other tests' loops may have threads of the same names."""
    before = set(threading.enumerate())
    yield
    if ours(before):  # of sessions that were forgotten
        gc.collect()
    end = time.monotonic() + 5
    while (left := ours(before)) and time.monotonic() < end:
        time.sleep(0.01)
    assert left == []


def ours(before: Collection[threading.Thread] = ()) -> list[str]:
    new = [thread.name for thread in threading.enumerate() if thread not in before]
    return [name for name in new if name.startswith(("abp-sync", "asyncio_"))]


# --- names and signatures ---------------------------------------------------------------------------------------------

RENAMED = {"aclose": "close", "__aenter__": "__enter__", "__aexit__": "__exit__"}
#: A session is given these and drives them; their users await nothing.
GIVEN = {"Transport"} | {f"{kind}Transport" for kind in ("Memory", "Playwright", "PostMessage", "WebMcp", "WebSocket")}
#: Playwright's own objects, which can be awaited in the session's loop only; what sessions tell each other; and a
#: stream of the loop's: ``stage()`` takes chunks.
LEFT_OUT = {"Browser.playwright", "Browser.context", "Browser.cdp", "Browser.on_end", "Browser.mark_ended"}
LEFT_OUT |= {"View.frame"}  # its methods block, as those of playwright.sync_api
LEFT_OUT |= {"Pool.lend"}  # what a session asks it
LEFT_OUT |= {"Browser.note_download"}  # what a download tells it
LEFT_OUT |= {"NoneStore.describe", "NoneStore.warn_once"}  # what the router asks it
LEFT_OUT |= {f"{name}.put_stream" for name in ("ArtifactStore", "LocalStore", "NoneStore")}
#: Made by connect, open_store, open_view and stage, around an asynchronous object.
FACADES = {"ArtifactStore", "CallHandle", "Session", "Staged", "View"}


def awaited(value: object) -> bool:
    """Whether it has to do with an event loop."""
    if inspect.isclass(value):
        members = [member for kind in value.__mro__ for member in vars(kind).values()]
        return any(map(awaited, members)) or issubclass(value, AbstractAsyncContextManager)
    if not inspect.isfunction(value):
        return False
    returned = str(inspect.signature(value).return_annotation)
    return inspect.iscoroutinefunction(value) or inspect.isasyncgenfunction(value) or "Async" in returned


def namesakes() -> Iterator[tuple[str, Any, Any]]:
    """Each public asynchronous thing with its blocking one."""
    for name in (*dir(transports), "Staged"):
        value = getattr(transports, name, None) or getattr(artifacts, name)
        if (awaited(value) and name not in GIVEN) or name in ("connect", "open_store"):
            yield name, value, getattr(transports.sync, name)


def methods() -> Iterator[tuple[str, Any, Any]]:
    of_batch = (("Pool", batch.Pool, blocking_batch.Pool), ("run", batch.run, blocking_batch.run))
    for name, value, blocking in (*namesakes(), *of_batch):
        if not inspect.isclass(value):
            yield name, value, blocking
            continue
        members = [*dict.fromkeys(attribute for kind in value.__mro__[:-1] for attribute in vars(kind))]
        for attribute in members:
            member = inspect.getattr_static(value, attribute)
            wanted = not attribute.startswith("_") or attribute in RENAMED
            wanted = wanted or (attribute == "__init__" and name not in FACADES)
            if wanted and f"{name}.{attribute}" not in LEFT_OUT and isinstance(member, (types.FunctionType, property)):
                there = inspect.getattr_static(blocking, RENAMED.get(attribute, attribute), None)
                assert there is not None, f"{name}.{attribute} has no namesake"
                yield f"{name}.{attribute}", member, there


def test_every_async_name_has_sync_counterpart() -> None:
    found = {name for name, _, _ in namesakes()} | {"expect"}  # the namesake of that is in playwright.async_api
    assert found == set(dir(transports.sync)) and dir(transports.sync) == sorted(found)


def in_blocking_terms(text: str) -> str:
    text = re.sub(r"AsyncGenerator\[(.*), None\]", r"AsyncIterator[\1]", text)
    return re.sub(r"Abstract(Async)ContextManager|Async(?=Iterator)", lambda m: m[0].replace("Async", ""), text)


@each_row(("name", "original", "blocking"), list(methods()))
def test_sync_signatures_and_docstrings_match_async(name: str, original: Any, blocking: Any) -> None:
    if isinstance(original, property):
        assert isinstance(blocking, property)
        assert original.fget and blocking.fget
        original, blocking = original.fget, blocking.fget
    assert not awaited(blocking)
    if name.endswith(("__aenter__", "__aexit__")):
        return
    theirs, own = inspect.signature(original), inspect.signature(blocking)
    assert dict(own.parameters) == dict(theirs.parameters)  # names, kinds, defaults, annotations
    if name.startswith(("LocalStore.", "NoneStore.")) or name.endswith("__init__"):
        return  # what they do is said in the contract, ArtifactStore
    assert in_blocking_terms(str(theirs.return_annotation)) == str(own.return_annotation)
    words = (original.__doc__ or blocking.__doc__).replace("app = await connect(…)", "app = connect(…).open()")
    words = words.replace("async with", "with").replace("async for", "for")
    assert blocking.__doc__ == words.replace("await ", "")


def test_sync_session_has_every_async_attribute(app_of: App) -> None:
    with app_of() as app:
        shown = {name for name in vars(app.wrapped) if not name.startswith("_")}
        assert shown and all(hasattr(app, name) for name in shown)
        assert app.info is app.wrapped.info and app.capabilities is app.wrapped.capabilities
        assert (app.session_id, app.warnings, app.transport.name) == (app.wrapped.session_id, (), "memory")


def test_sync_connect_forwards_every_option(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given: dict[str, object] = {}
    real = transports.connect

    def capture(target: str, **options: object) -> object:
        given.update(options, target=target)
        return real("memory:", transport=MemoryTransport({}))

    monkeypatch.setattr("transports.sync._session.async_connect", capture)
    store = LocalStore(tmp_path)
    names = [name for name in inspect.signature(connect).parameters if name not in ("page", "context")]
    options: dict[str, Any] = {name: object() for name in names} | {"store": store}
    connect(**options)
    assert given == options | {"store": store.wrapped}


# --- calls ------------------------------------------------------------------------------------------------------------


def test_sync_call_sends_files_and_reports_progress(app_of: App, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_bytes(b"content")
    seen: list[tuple[Progress, str]] = []
    with app_of() as app:
        result = app.call(
            "echo",
            {"file": tmp_path / "in.txt", "n": 1},
            on_progress=lambda progress: seen.append((progress, threading.current_thread().name)),
        )
        ref = result.artifacts["document"]
        assert app.store.get(ref.id) == b"content" == b"".join(app.store.open(ref.id, chunk_size=3))
        assert Path(ref.path or "").read_bytes() == b"content"
        assert app.call("echo", {"file": b"in memory"}).artifacts["document"].size_bytes == 9
        assert app.save(ref, tmp_path / "a.txt") == tmp_path / "a.txt"
        assert app.store.export(ref.id, tmp_path / "b.txt") == tmp_path / "b.txt"
    assert (tmp_path / "a.txt").read_bytes() == (tmp_path / "b.txt").read_bytes() == b"content"
    assert [(progress.stage, thread) for progress, thread in seen] == [("half", "abp-callback")]


async def flood(params: Mapping[str, Any], call: Call) -> object:
    for n in range(params["count"]):
        await call.notify("counted", n)
    return "done"


def test_sync_notification_callback_may_make_calls(app_of: App, monkeypatch: pytest.MonkeyPatch) -> None:
    # a call that waited for its own callback would hang
    monkeypatch.setattr(event_dispatch, "LIMITS", replace(event_dispatch.LIMITS, callback=30.0, callbacks=30.0))
    answers: list[object] = []

    def call_back(notification: Notification) -> None:
        answers.append(app.call("flood", {"count": 0}).data)

    with app_of(MemoryTransport({"flood": flood}), on_notification=call_back) as app:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(app.call, "flood", {"count": 3}).result(10)
        assert answers == ["done"] * 3


def test_sync_handler_runs_in_thread_and_coroutine_in_loop(app_of: App) -> None:
    def handler(request: ElicitationRequest) -> Mapping[str, object]:
        assert threading.current_thread() is not threading.main_thread()
        return {"success": True, "data": {"value": f"{request.params['message']} {app.call('echo').data is not None}"}}

    async def coroutine(_: ElicitationRequest) -> Mapping[str, object]:
        with pytest.raises(UsageError, match="plain function"):
            app.call("echo")
        return {"success": True, "data": {"value": "refused"}}

    for on_elicitation, answer in ((handler, "Name? True"), (coroutine, "refused")):
        with app_of(on_elicitation=on_elicitation) as app:
            assert app.call("ask").data == {"answer": answer}


def test_sync_errors_match_async_and_start_at_caller_line(app_of: App) -> None:
    with app_of() as app:
        with pytest.raises(CapabilityError, match="not today") as refused:
            app.call("refuse")
        with pytest.raises(CapabilityError, match="did you mean echo"):
            app.call("ecco")
        with pytest.raises(UsageError):
            app.call("echo", timeout=-1)
    first = traceback.extract_tb(refused.value.__traceback__)[0]
    assert (first.filename, first.line) == (__file__, 'app.call("refuse")')


def test_call_is_started_and_polled_later(app_of: App) -> None:
    with app_of() as app:
        handle = app.start("echo", {"n": 1}, call_id="mine")
        assert isinstance(handle, CallHandle) and (handle.id, handle.capability) == ("mine", "echo")
        assert handle.result().data == {"given": {"n": "int"}, "document": None}
        assert handle.status() == "completed"
        endless = app.start("forever")
        assert endless.status() == "working"
        endless.cancel()
        assert endless.status() == "cancelled"


def test_calls_of_several_threads_run_concurrently_in_their_contexts(app_of: App) -> None:
    barrier, who = asyncio.Barrier(10), ContextVar("who", default=-1)

    async def meet(params: Mapping[str, object], call: Call) -> object:
        async with barrier:  # entered by ten calls or by none
            return {"done": params["n"], "who": who.get()}

    def meet_as(n: int) -> object:
        who.set(n)
        return app.call("meet", {"n": n}).data

    with app_of(MemoryTransport({"meet": meet})) as app, ThreadPoolExecutor(10) as pool:
        results = list(pool.map(meet_as, range(10)))
    assert results == [{"done": n, "who": n} for n in range(10)]


async def test_sync_session_works_inside_running_loop(app_of: App) -> None:
    with app_of() as app:
        assert app.call("echo", {"n": 1}).data == {"given": {"n": "int"}, "document": None}
        with pytest.raises(TypeError, match="await"):
            await app.call("echo")  # type: ignore[misc]
    with pytest.raises(UsageError, match="is opened with `with`"):
        async with app_of():  # type: ignore[attr-defined]
            pass


# --- events -----------------------------------------------------------------------------------------------------------


def test_sync_events_are_queued_in_block_and_end_with_session(app_of: App) -> None:
    with app_of() as app, ThreadPoolExecutor(1) as pool:
        with pytest.raises(TypeError, match="not iterable"):
            list(app.events())  # type: ignore[call-overload]
        app.call("echo")
        with app.events() as left:
            app.call("echo")
            for event in left:
                assert isinstance(event, CallStarted)
                break
        with app.events() as events:
            seen = pool.submit(list[Event], events)
            app.call("echo")
            with suppress(CallTimeout):
                app.call("forever", timeout=0.1)
            app.close()
            kinds = [type(event) for event in seen.result(5)]
    assert kinds == [CallStarted, Progress, CallFinished, CallStarted, Notification, CallFinished]


# --- opening and closing ----------------------------------------------------------------------------------------------


class InOneTask(MemoryTransport):
    """Insists on being closed in the task that opened it, as cancel scopes do."""

    async def open(self) -> None:
        self.task = asyncio.current_task()
        await super().open()

    async def aclose(self) -> None:
        assert asyncio.current_task() is self.task
        await super().aclose()


class Refusing(MemoryTransport):
    async def open(self) -> None:
        raise Disconnected("nobody there")


def test_sync_sessions_share_one_thread_that_ends_with_last(app_of: App) -> None:
    def loops() -> int:
        return ours().count("abp-sync")

    with pytest.raises(Disconnected):
        app_of(Refusing({})).open()
    assert loops() == 0
    with app_of(InOneTask(HANDLERS)) as one:
        with app_of() as two:
            two.store.list()
            assert loops() == 1
            assert repr(two) == "<blocking open Session with 'In-process app' over memory>"
            assert repr(two.store.wrapped) in repr(two.store) and repr(two.store).count("<") == 1
        assert one.call("echo").data and loops() == 1
    assert loops() == 0


def test_close_is_idempotent_and_closed_session_rejects_calls(app_of: App) -> None:
    app = app_of()
    with pytest.raises(UsageError):
        app.call("echo")
    with app:
        app.close()
        app.close()
        with pytest.raises(Disconnected):
            app.call("echo")
    app.close()
    with pytest.raises(UsageError, match="opened only once"), app:
        pass


def test_closing_from_another_thread_ends_a_call(app_of: App) -> None:
    with app_of() as app, ThreadPoolExecutor(1) as pool, app.events() as events:
        call = pool.submit(app.call, "forever")
        assert next(event for event in events if isinstance(event, Notification))
        app.close()
        with pytest.raises(ABPError):
            call.result(5)


def test_unclosed_session_is_closed_with_resource_warning(app_of: App) -> None:
    transport = MemoryTransport(HANDLERS)
    app = app_of(transport).open()
    with pytest.warns(ResourceWarning, match="was not closed"):
        del app
        gc.collect()
    end = time.monotonic() + 5
    while not transport._closed and time.monotonic() < end:
        time.sleep(0.01)
    assert transport._closed


# --- stores and the router --------------------------------------------------------------------------------------------


def test_sync_store_stages_commits_and_reads(tmp_path: Path) -> None:
    store = open_store(tmp_path / "kept")
    with store.stage() as staged:
        staged.write(b"a")
        staged.reset()
        staged.write(b"bc")
        assert staged.size == 2
        ref = staged.commit(filename="b.txt", namespace="mine")
    with pytest.raises(ZeroDivisionError), store.stage() as staged:
        staged.write(b"lost")
        raise ZeroDivisionError
    assert [found.id for found in store.list()] == [ref.id] == [store.stat(ref.id).id]
    assert store.put_bytes(b"bc", namespace="mine").id == ref.id and store.get(ref.id) == b"bc"
    assert store.delete(ref.id) is True and store.list() == []
    assert not list((tmp_path / "kept" / ".abp" / "staging").iterdir())
    assert (store.url, store.max_bytes) == ((tmp_path / "kept").as_uri(), artifacts.LocalStore().max_bytes)
    assert store.get(ref.id) is None
    with pytest.raises(transports.StoreError):
        store.get(ref)
    assert (LocalStore(tmp_path, max_bytes=3).max_bytes, NoneStore(max_bytes=4).max_bytes) == (3, 4)


def test_a_store_is_closed_at_the_end_of_its_block(tmp_path: Path) -> None:
    def open_files() -> list[str]:
        links = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
        return [link for link in links if str(tmp_path) in link]

    with open_store(tmp_path / "out", retention=Retention()) as store:
        view = store.scoped(Scope(session="s"))
        assert store.get(view.put_bytes(b"content").id) == b"content" and open_files() != []
    assert open_files() == []
    other = LocalStore(tmp_path / "out", retention=Retention())
    other.scoped(Scope(session="s")).put_bytes(b"other")
    other.close()
    assert open_files() == []


def test_unentered_store_serves_reads_and_a_router(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    ref = store.put_bytes(bytes(3 << 20))
    assert sum(map(len, store.open(ref))) == 3 << 20
    result = Router(store).route({"document": {"content": b"x", "mimeType": "text/plain"}}, capability="c")
    assert Path(result.artifacts["document"].path or "").read_bytes() == b"x"
    pieces = store.open(ref, chunk_size=100)
    assert len(next(pieces)) == 100 == len(next(pieces))
    del pieces  # left in the middle


# --- the pool ---------------------------------------------------------------------------------------------------------


def test_blocking_pool_maps_jobs_and_does_not_leak(tmp_path: Path) -> None:
    def app(target: str, **options: Any) -> Any:
        return transports.connect("memory:", transport=MemoryTransport(HANDLERS), **options)

    with blocking_batch.Pool(sessions=2, connect=app, store=tmp_path) as pool:
        jobs = (batch.Job("echo", {"n": n}, "ws://app.example/") for n in range(6))
        assert {outcome.state for outcome in pool.map(jobs)} == {batch.State.SUCCEEDED}
        assert pool.run(batch.Job("refuse", {}, "ws://app.example/")).error_code == "PERMISSION_DENIED"
        with pytest.raises(CapabilityError):
            pool.call("ws://app.example/", "refuse")
        for outcome in pool.map(batch.Job("echo", {}, "ws://app.example/") for _ in range(30)):
            assert outcome.result
            break
        assert pool.stats().calls >= 8 and pool.size >= 2
        settled: list[object] = []
        lines = [batch.Job("echo", {"n": n}, "ws://app.example/") for n in range(3)]
        report = blocking_batch.run(lines, tmp_path / "run", pool=pool, on_settled=settled.append)
        assert report["jobs"] == len(settled) == 3 and (tmp_path / "run" / "manifest.jsonl").is_file()
        with pytest.raises(UsageError, match="another input"):
            blocking_batch.run(lines[:1], tmp_path / "run", pool=pool)

        folder = tmp_path / "files"
        folder.mkdir()
        (folder / "a.txt").write_text("a")
        job = {"capability": "echo", "target": "ws://app.example/", "files": {"file": "a.txt"}}
        (tmp_path / "jobs.jsonl").write_text(json.dumps(job))
        report = blocking_batch.run(tmp_path / "jobs.jsonl", tmp_path / "of-file", pool=pool, files_from=folder)
        assert report["jobs"] == 1


def test_sync_error_advice_uses_sync_terms(app_of: App) -> None:
    session = app_of()
    for use in (lambda: session.call("echo"), lambda: session.start("echo"), session.screenshot):
        with pytest.raises(UsageError) as caught:
            use()
        advice = "the session is not open; use `with connect(…) as app` or `app = connect(…).open()`"
        assert str(caught.value).startswith(advice) and caught.value.message == advice
    closed = transports.sync.Browser()
    assert closed.closed
    with pytest.raises(UsageError, match="connect inside `with Browser"):
        closed.restart()


async def answer() -> int:
    return 1


def in_thread(work: Callable[[], object]) -> list[object]:
    """Return the result or the exception of work that may hang, and fail if it does."""
    outcome: list[object] = []

    def run() -> None:
        try:
            outcome.append(work())
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), "it hangs"
    return outcome


def test_loop_start_failure_raises_and_next_call_starts_new_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing() -> Any:
        raise OSError(errno.EMFILE, "too many open files")

    background = Background()
    with monkeypatch.context() as patch:
        patch.setattr(asyncio.events, "new_event_loop", failing)
        (error,) = in_thread(lambda: background.run(answer()))
    assert isinstance(error, ABPError) and "too many open files" in error.message
    assert in_thread(lambda: background.run(answer())) == [1]


def test_background_on_windows_can_start_processes_whatever_the_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    class Proactor(asyncio.SelectorEventLoop):
        pass

    async def running() -> type:
        return type(asyncio.get_running_loop())

    monkeypatch.setattr(asyncio, "ProactorEventLoop", Proactor, raising=False)
    assert in_thread(lambda: Background().run(running())) == [Proactor]


class NotClosing(MemoryTransport):
    async def aclose(self) -> None:
        await super().aclose()
        raise KeyError("cannot be closed")


async def test_unclosed_session_that_fails_to_close_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    app = await asyncio.to_thread(connect("memory:", transport=NotClosing({}), store="none:").open)
    with caplog.at_level(logging.ERROR), pytest.warns(ResourceWarning, match="was not closed"):
        del app
        gc.collect()
        await eventually(lambda: "a forgotten object did not close: KeyError('cannot be closed')" in caplog.text)
