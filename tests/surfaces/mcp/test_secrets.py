"""A secret that an agent uses by its name: its value is in nothing that the agent's client or the gallery gets."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from tests.support.apps import AtAddress
from tests.support.mcp_clients import ERAS, URL, Apps, called, files_of, read_as_resource
from tests.support.slow import slow_but
from tests.support.web_client import Web, running
from transports import BinaryData, CapabilityError
from transports._internal.masking import KNOWN_SECRETS
from transports.artifacts import open_store
from transports.surfaces.mcp._bridge import Bridge
from transports.surfaces.mcp._options import Options
from transports.testing import Call

CANARY, NAME = "canary-of-the-bridge", "${SECRET:CRM}"


async def log_in(params: Mapping[str, Any], call: Call) -> object:
    """Say what is told."""
    told = params["password"]
    assert told == CANARY
    await call.progress(stage=told, progress=1, total=2)
    await call.notify("told", told)
    return {"said": told, "file": BinaryData.from_bytes(f"It is {told}.".encode(), mime_type="text/plain")}


async def fail(params: Mapping[str, Any], call: Call) -> object:
    raise CapabilityError(f"{params['password']} is wrong")


@pytest.mark.parametrize("era", slow_but(ERAS, "2026-07-28"))
async def test_secret_value_never_reaches_mcp_client(
    tmp_path: Path, era: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("CANARY", CANARY)
    config = tmp_path / "team.toml"
    config.write_text('[secrets.CRM]\nenv = "CANARY"\norigins = ["http://app.test"]\n')
    shown: list[object] = []

    async def note(message: object) -> None:
        shown.append(message)

    async def logged(params: object) -> None:
        shown.append(params)

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        shown.append((progress, total, message))

    store = open_store(tmp_path / "out")
    try:
        async with running(store, {}) as web:
            activity = web.served.activity
            app = partial(AtAddress, "http://app.test/")
            apps = partial(Apps({"log.in": log_in, "log.fail": fail}, app), config=config)
            bridge = Bridge(Options(), store, connect=apps, activity=activity)
            async with Client(bridge.server, mode=era, message_handler=note, logging_callback=logged) as client:
                shown.append(await called(client, "abp_connect", url=URL))
                answer = await client.call_tool("abp_log_in", {"password": NAME}, progress_callback=progressed)
                shown += [answer, await client.call_tool("abp_log_fail", {"password": NAME})]
                assert answer.structured_content["data"]["said"] == NAME
                for artifact in files_of(answer.structured_content):
                    shown.append(await read_as_resource(client, artifact["uri"]))
                    shown.append(await client.call_tool("abp_read_artifact", {"id": artifact["id"]}))
                shown += [await called(client, "abp_status"), *(await seen_in_the_gallery(web))]
    finally:
        KNOWN_SECRETS.forget()
    assert len(shown) > 8 and NAME in repr(shown) and "*" * len(CANARY) in repr(shown)
    assert CANARY not in repr(shown) + caplog.text
    assert not any(CANARY.encode() in path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file())


async def seen_in_the_gallery(web: Web) -> list[bytes]:
    return [(await web.get(path)).body for path in ("/calls", "/apps", "/artifacts", "/metrics")]
