"""The choice of evidence, and the evidence of calls over transports without a page."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Error

from tests.conftest import Connect
from tests.support.apps import answering, hang
from tests.support.fake_page import SECRET, FakePage
from transports import (
    CallFinished,
    CallTimeout,
    CapabilityError,
    Evidence,
    MemoryTransport,
    Retention,
    UsageError,
    connect,
    open_store,
)
from transports._internal.redaction import EvidenceRedactor
from transports.protocol.binary import BinaryData
from transports.session._evidence import read_evidence
from transports.testing import Call


def test_evidence_options_are_parsed_from_text() -> None:
    assert read_evidence("") == Evidence()
    assert read_evidence(" trace, video=on-failure ,har=off,max_files=20,max_age=7d") == Evidence(
        trace="on", video="on-failure", har="off", max_files=20, max_age=604_800
    )
    chosen = read_evidence("trace,video=on-failure")
    assert chosen.kinds() == chosen.kinds(failed=True) == {"trace", "video"} and chosen.kinds(failed=False) == {"trace"}
    for wrong in ("tracing", "trace=maybe", "trace=", "max_files=some", "max_files=0", "max_age=soon", "har,har=off"):
        with pytest.raises(UsageError, match="evidence: "):
            read_evidence(wrong)
    with pytest.raises(UsageError, match='har is "off", "on" or "on-failure"'):
        Evidence(har="always")  # type: ignore[arg-type]
    assert Evidence(trace=True, har=False).kinds() == {"trace"}


async def sign_in(params: Mapping[str, object], call: Call) -> object:
    await call.progress(percentage=50, status=f"checking {params['password']}")
    await call.notify(
        "log", {"level": "info", "password": params["password"], "text": f"for {params['password']} \ud800"}
    )
    if params.get("fail"):
        raise CapabilityError("wrong", code="DENIED")
    return {"done": True}


def transport() -> MemoryTransport:
    return MemoryTransport({"sign.in": sign_in})


async def test_app_without_page_records_only_console(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="har, trace need an app in a page; this one is reached by memory"):
        await connect("memory:", transport=transport(), evidence=Evidence(trace=True, har=True, console=True))
    with pytest.raises(UsageError, match="needs a store that keeps files"):
        connect("memory:", transport=transport(), store="none:", evidence=Evidence(console=True))
    choice = Evidence(console="on-failure")
    session = connect("memory:", transport=transport(), store=tmp_path, evidence=choice)
    async with session as app, app.events() as events:
        assert not (await app.call("sign.in", {"password": "canary-77"})).evidence
        with pytest.raises(CapabilityError) as raised:
            await app.call("sign.in", {"password": "canary-77", "fail": True}, call_id="call-2")
        async for event in events:
            if isinstance(event, CallFinished) and event.call == "call-2":
                assert [*event.evidence] == ["console"]
                break
    kept = raised.value.evidence["console"]
    assert kept.path is not None and kept.mime_type == "text/plain"
    lines = kept.path.read_text().splitlines()
    assert "progress: checking <redacted>" in lines[0] and "for <redacted> ?" in lines[1] and len(lines) == 2
    ref = await open_store(tmp_path).stat(kept.id)
    assert {"app", "created", "capability", "call", "evidence"} <= {*ref.source} and ref.source["call"] == "call-2"
    assert raised.value.as_dict()["evidence"] == [{"kind": "console", **ref.as_dict()}]


async def test_refused_answer_of_caller_has_evidence_of_its_call(app_of: Connect) -> None:
    async def ask(_: Mapping[str, object], call: Call) -> object:
        await call.notify("log", {"text": "asking"})
        await call.elicit("elicitation/confirm", {})
        raise CapabilityError("cancelled by the user", code="CANCELLED")

    async with app_of({"ask": ask}, evidence=Evidence(console=True), on_elicitation=lambda _: {"success": True}) as app:
        with pytest.raises(UsageError) as raised:
            await app.call("ask")
    assert [*raised.value.evidence] == ["console"]


async def test_evidence_limit_does_not_affect_other_files(tmp_path: Path) -> None:
    choice = Evidence(console=True, max_files=2)
    async with connect("memory:", transport=transport(), store=tmp_path, evidence=choice) as app:
        results = [await app.call("sign.in", {"password": f"secret-{n}"}, call_id=f"call-{n}") for n in range(4)]
        kept = [await app.store.exists(result.evidence["console"].id) for result in results]
        assert kept == [False, False, True, True]
        assert all([await app.store.exists(result.artifact().id) for result in results])
        assert results[3].as_dict()["evidence"]


async def test_unstorable_evidence_does_not_fail_call_and_leaves_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    store = open_store(tmp_path / "small", max_bytes=40)
    async with connect("memory:", transport=transport(), store=store, evidence=Evidence(console=True)) as app:
        result = await app.call("sign.in", {"password": "secret-1"})
        assert not result.evidence and "evidence: console: the content is over the limit" in result.warnings[0]
        with pytest.raises(CapabilityError) as raised:
            await app.call("sign.in", {"password": "secret-1", "fail": True})
        assert "over the limit" in str(raised.value.details["evidence"])
    async with connect(
        "memory:", transport=transport(), store=tmp_path / "out", evidence=Evidence(console=True)
    ) as app:
        assert (await app.call("sign.in", {"password": "secret-1"})).evidence
    assert not [*scratch.iterdir()]


async def test_file_evicted_by_evidence_is_named_in_warning(tmp_path: Path) -> None:
    file = BinaryData.from_bytes(b"a" * 990, mime_type="text/plain", filename="a.txt")
    app = MemoryTransport({"make": answering({"file": file})})
    store = open_store(tmp_path, retention=Retention.only(max_session_bytes=1000))
    async with connect("memory:", transport=app, store=store, evidence=Evidence(console=True)) as session:
        result = await session.call("make")
        assert result.evidence and not await session.store.exists(result.artifact().id)
        assert result.warnings == ("the answer is over the limits of the retention; removed again: file",)


async def test_console_redaction_runs_off_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[int] = set()

    def line(self: EvidenceRedactor, text: str) -> str:
        threads.add(threading.get_ident())
        return text

    async def talk(params: object, call: Call) -> object:
        await call.notify("log", {"rows": [Row()] * 10_000})
        return None

    class Row(dict[str, str]):
        """Counts how often it is encoded."""

        seen = 0

        def items(self) -> Any:
            Row.seen += 1
            return {"text": "x" * 100}.items()

        def __bool__(self) -> bool:
            return True

    monkeypatch.setattr(EvidenceRedactor, "redact_line", line)
    app = MemoryTransport({"talk": talk})
    async with connect("memory:", transport=app, store=tmp_path, evidence=Evidence(console=True)) as session:
        kept = (await session.call("talk")).evidence["console"]
    assert threads and threading.get_ident() not in threads
    assert kept.path is not None and 4000 < len(kept.path.read_text()) < 4100
    assert Row.seen < 100  # and no more of it is encoded than is kept


class InPage(MemoryTransport):
    """An app in a page that only looks like one."""

    def __init__(self, page: FakePage) -> None:
        super().__init__({"sign.in": sign_in, "job.hold": hang})
        self.page = page


async def test_timed_out_call_keeps_evidence_and_cancelled_call_does_not(tmp_path: Path) -> None:
    page = FakePage()
    choice = Evidence(trace="on-failure", har="on-failure", screenshot="on-failure")
    async with connect("memory:", transport=InPage(page), store=tmp_path, evidence=choice) as app:
        cancelled = asyncio.ensure_future(app.call("job.hold"))
        while app.transport.page.stopped.count("har") < 2:  # type: ignore[attr-defined]
            await asyncio.sleep(0)  # the first is the trial at opening
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert not (await app.call("sign.in", {"password": SECRET})).evidence
        with pytest.raises(CallTimeout) as late:
            await app.call("job.hold", timeout=0.05)
        assert [*late.value.evidence] == ["trace", "har", "screenshot"] and not late.value.details
    kept = [ref for ref in await open_store(tmp_path).list() if "evidence" in ref.source]
    assert len(kept) == 3 and page.stopped.count("stop") == page.stopped.count("trace") == 4


async def test_unsupported_evidence_is_rejected_on_open(tmp_path: Path) -> None:
    page = FakePage(video=Error("Executable doesn't exist at /registry/ffmpeg-linux"))
    with pytest.raises(UsageError, match="evidence: video: a video needs Playwright's ffmpeg, which is not here"):
        await connect("memory:", transport=InPage(page), store=tmp_path, evidence=Evidence(video=True, har=True))
    assert page.stopped.count("stop_har") == page.stopped.count("har")


async def test_truncated_console_reports_omitted_line_count() -> None:
    async def chatter(params: Mapping[str, object], call: Call) -> object:
        await call.notify("log", {"text": "0" * 4000})
        for _ in range(5002):
            await call.notify("log", {"text": "short"})
        return {}

    store = open_store("memory:")
    app_transport = MemoryTransport({"chatter": chatter})
    async with connect("memory:", transport=app_transport, store=store, evidence=Evidence(console=True)) as app:
        result = await app.call("chatter")
        first, *others, rest = (await store.get(result.evidence["console"])).decode().splitlines()
    assert first.partition(" log: ")[2] == f'{{"text": "{"0" * 3985}…' and len(others) == 4999
    assert rest == "… and 3 more lines, which were not kept"
