"""``abp resources --watch``, with a server in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.resources import ResourceApp
from transports import Session, UsageError, connect as connect_app
from transports.protocol.messages import Message
from transports.surfaces.cli._commands import run
from transports.surfaces.cli._output import print_event

URI = "note:///a b?c=d"


def test_watched_resource_is_read_at_start_on_change_and_on_reconnect(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    server = ResourceApp()

    def connect(target: str, **options: Any) -> Session:
        return connect_app("memory:", **options | {"transport": server})

    shown = 0

    def watch(document: Any) -> None:
        nonlocal shown
        print_event(document)
        shown += 1
        if shown == 3:
            raise UsageError("enough")
        server.resources[URI]["text"] = f"text {shown}"
        if shown == 2:  # a change while the connection is lost is not heard
            for what in ("lost", "restored"):
                server.emit(Message(f"connection/{what}", {"reason": "cut"}))
            return
        server.change("note:///long")  # not watched
        server.change(URI)

    monkeypatch.setattr("transports.session._connect.connect", connect)
    monkeypatch.setattr("transports.surfaces.cli._mcp_targets.print_event", watch)
    assert run(["resources", "mcp+stdio:x", "--watch", URI, "--json", "--out", str(tmp_path)]) == 2
    captured = capsys.readouterr()
    documents = [json.loads(line) for line in captured.out.splitlines()]
    assert "enough" in captured.err and documents.pop()["success"] is False
    texts = [document["result"]["data"]["contents"][0]["text"] for document in documents]
    assert texts == ["short", "text 1", "text 2"] and {document["uri"] for document in documents} == {URI}
    assert server.reads == 3
