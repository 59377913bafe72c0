"""Calls that a running server makes for the command line, in this process: the server has a loop in a thread."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.support.apps import ask_name, hang
from tests.support.command_line import CommandLine, in_thread
from tests.support.web_client import TOKEN, running
from transports import BinaryData, CapabilityError
from transports.artifacts import LocalStore
from transports.memory import Call
from transports.surfaces.shared._detached import CallLedger
from transports.surfaces.web._access import Options
from transports.surfaces.web._server import serve
from webapp_fixture import Fixture

URL = "http://app.test/"


async def shout(params: Mapping[str, object], call: Call) -> object:
    file = params.get("file")
    content = file.read().decode() if isinstance(file, BinaryData) else ""
    return {"text": str(params["text"]).upper(), "file": content}


async def refuse(params: Mapping[str, object], call: Call) -> object:
    raise CapabilityError("no paper", code="PRINTER_EMPTY")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    app = {"text.shout": shout, "job.hold": hang, "job.refuse": refuse, "job.ask": ask_name}
    ledger = CallLedger(tmp_path / "kept")
    serving = running(LocalStore(tmp_path / "served"), app, question_timeout=0.3, ledger=ledger)
    with in_thread(serving) as web:
        yield web.served.url


@pytest.mark.load
def test_detached_calls_are_started_listed_awaited_and_cancelled(
    abp: CommandLine, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there: tuple[str, ...] = ("--server", server, "--token", TOKEN)
    (tmp_path / "a.txt").write_text("content", encoding="utf-8")
    started = abp(
        "call", URL, "text.shout", "-p", "text=hi", "--file", f"file={tmp_path / 'a.txt'}", "--detach", *there
    )
    assert started.status == 0, started
    call = started.out.strip()
    assert f"abp calls wait {call}" in started.err
    (tmp_path / "token").write_text(f"{TOKEN}\n", encoding="utf-8")
    there = ("--server", server, "--token", f"@{tmp_path / 'token'}")
    second = abp("call", URL, "text.shout", "-p", "text=hi", "--detach", *there).out.strip()
    assert abp("calls", "wait", second, *there).status == 0
    done = abp("calls", "wait", call, *there)
    assert done.status == 0 and done.out.splitlines()[0] == '{"text": "HI", "file": "content"}'
    monkeypatch.setenv("ABP_SERVE_TOKEN", TOKEN)
    there = ("--server", server)
    assert abp("calls", "wait", call, *there, "--json").document["data"]["text"] == "HI"
    endless = abp("call", URL, "job.hold", "--detach", *there, "--json").document["call"]
    assert (endless["status"], endless["detached"]) == ("working", True)
    listed = abp("calls", "list", *there).out.splitlines()
    expected = [(endless["id"], "working"), (second, "completed"), (call, "completed")]
    assert [(*line.split()[:2],) for line in listed] == expected
    assert len({one["session"] for one in abp("calls", "list", *there, "--json").document["calls"]}) == 1  # one app
    cancelled = abp("calls", "cancel", endless["id"], *there)
    assert cancelled.out == f"{endless['id']}  cancelled\n"
    again = abp("calls", "cancel", endless["id"], *there, "--json").document
    assert again["success"] is True and again["call"]["status"] == "cancelled"
    over = abp("calls", "wait", endless["id"], *there, "--json")
    assert over.status == 1 and over.document["error"]["code"] == "CANCELLED" and over.document["cancelled"] is True
    other = abp("call", f"{URL}?doc=1", "job.hold", "--detach", *there, "--json").document["call"]
    again = abp("call", f"{URL}?doc=1", "job.hold", "--detach", *there, "--json").document["call"]
    assert endless["session"] != other["session"] == again["session"]
    asking = abp("call", endless["session"], "job.ask", "--detach", *there).out.strip()
    answered = abp("calls", "wait", asking, *there)
    assert answered.status == 0 and json.loads(answered.out.splitlines()[0])["data"] == {"value": "Ada"}
    failed = abp("call", URL, "job.refuse", "--detach", *there).out.strip()
    refused = abp("calls", "wait", failed, *there)
    assert refused.status == 1 and "no paper [PRINTER_EMPTY]" in refused.err
    short = abp("call", URL, "job.hold", "--detach", "--timeout", "0.1", *there).out.strip()
    assert "no answer within 0.1 s" in abp("calls", "wait", short, *there).err


@pytest.fixture
def foreign() -> Iterator[str]:
    """A server of somebody else's."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(text="<html>" if "wait" in request.path_qs else '{"calls": [{"id": 1}]}')

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    with in_thread(TestServer(app)) as server:
        yield str(server.make_url("/"))


def test_usage_errors_name_option_to_fix(abp: CommandLine, server: str, foreign: str) -> None:
    there = ("--server", server, "--token", TOKEN)
    for args, status, words in (
        (("calls", "list"), 2, "--server"),
        (("calls", "list", "--server", server), 2, "ABP_SERVE_TOKEN"),
        (("calls", "list", "--server", server, "--token", "wrong"), 1, "ABP_SERVE_TOKEN [PERMISSION_REQUIRED]"),
        (("calls", "list", "--server", "http://127.0.0.1:9/", "--token", TOKEN), 1, "is `abp serve` running?"),
        (("calls", "list", "--server", foreign, "--token", TOKEN), 1, "[PROTOCOL_ERROR]"),
        (("calls", "wait", "x", "--server", foreign, "--token", TOKEN), 1, "no JSON object"),
        (("calls", "wait", "nothing", *there), 1, "[CALL_NOT_FOUND]"),
        (("calls", "wait", "../artifacts", *there), 1, "[CALL_NOT_FOUND]"),
        (("calls", "cancel", "nothing", *there), 1, "[CALL_NOT_FOUND]"),
        (("call", URL, "text.shuot", "--detach", *there), 1, "text.shout"),
        (("call", URL, "text.shout", "--detach", *there, "--headed"), 2, "--headed"),
        (("call", URL, "text.shout", "--detach", *there, "--browser-server", "ws://a/"), 2, "--browser-server"),
        (("call", URL, "text.shout", "--detach", *there, "--evidence", "trace"), 2, "--evidence"),
        (("call", URL, "text.shout", "--server", server), 2, "--detach"),
        (("call", URL, "text.shout", "--detach", "--server", server, "--token", "@/none"), 2, "@/none"),
    ):
        ran = abp(*args)
        assert ran.status == status and words in ran.err, ran


def placeless(text: str) -> str:
    """Leave out where files are: the server has a scope for each session, and a name is taken once."""
    return re.sub(r"(: )/\S+$", r"\1", text, flags=re.MULTILINE)


@pytest.mark.load
def test_detached_call_prints_same_output_as_direct_call(abp: CommandLine, workbench: Fixture, tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "out")
    with in_thread(serve(store, Options(token=TOKEN, key="k" * 32))) as served:
        there = ("--server", served.url, "--token", TOKEN)
        for args in (("export.pdf", "-p", "html=<h1>Hi</h1>"), ("data.json", "-p", 'rows=[{"a":1}]')):
            own = abp("call", workbench.ws_url, *args)
            started = abp("call", workbench.ws_url, *args, "--detach", *there)
            waited = abp("calls", "wait", started.out.strip(), *there)
            assert (waited.status, placeless(waited.out)) == (own.status, placeless(own.out)), args
