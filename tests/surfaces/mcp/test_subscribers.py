"""Notifications to clients of both eras: changed artifacts, and log messages of apps."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from mcp_types import (
    EmptyResult,
    LoggingMessageNotificationParams,
    SetLevelRequest,
    SetLevelRequestParams,
    UnsubscribeRequest,
    UnsubscribeRequestParams,
)

from tests.support.eventually import eventually
from tests.support.mcp_clients import URL, Apps, Notifications, Serve, both_eras, called, files_of, newer_era
from tests.support.resources import ResourceApp
from tests.support.web_client import running
from transports.artifacts import open_store
from transports.testing import Call


@both_eras
async def test_subscribed_artifact_is_announced_on_removal_and_restore(serve: Serve, era: str, tmp_path: Path) -> None:
    notifications = Notifications()
    async with serve(message_handler=notifications.message) as client:
        uri = files_of(await called(client, "abp_text_shout", text="hi"))[0]["uri"]
        other = files_of(await called(client, "abp_text_shout", text="ho"))[0]["uri"]
        async with notifications.subscribed(client, era, uri):
            store = open_store(tmp_path / "out")  # somebody else: `abp artifacts rm`
            await store.delete(other.removeprefix("artifact://"))
            await store.delete(uri.removeprefix("artifact://"))
            received: list[str] = []
            async with asyncio.timeout(10):
                while not {uri, "list"} <= set(received):
                    received.append(await notifications.received.get())
            assert other not in received
            await called(client, "abp_text_shout", text="hi")
            await notifications.until(uri)


@newer_era
async def test_files_of_detached_call_are_announced(serve: Serve, era: str) -> None:
    notifications = Notifications()
    async with serve(message_handler=notifications.message) as client, notifications.subscribed(client, era):
        await called(client, "abp_call", capability="text.shout", params={"text": "hi"}, detach=True)
        await notifications.until("list")


@pytest.mark.requirement("R2-5.7d")
@pytest.mark.parametrize("era", ["legacy"])
async def test_an_unsubscribed_client_gets_no_updates(serve: Serve, era: str, tmp_path: Path) -> None:
    notifications = Notifications()
    async with serve(message_handler=notifications.message) as client:
        declared = client.server_capabilities.resources
        assert declared and declared.subscribe and declared.list_changed
        refs = [files_of(await called(client, "abp_text_shout", text=text))[0] for text in ("a", "b")]
        store = open_store(tmp_path / "out")
        async with notifications.subscribed(client, era, *(ref["uri"] for ref in refs)):
            request = UnsubscribeRequest(params=UnsubscribeRequestParams(uri=refs[0]["uri"]))
            await client.session.send_request(request, EmptyResult)
            for ref in refs:
                await store.delete(ref["id"])
            received: list[str] = []
            async with asyncio.timeout(10):
                while refs[1]["uri"] not in received:
                    received.append(await notifications.received.get())
            assert refs[0]["uri"] not in received


@pytest.mark.requirement("R2-5.7d")
@newer_era
async def test_resource_subscriptions_are_forwarded_to_servers(serve: Serve, era: str) -> None:
    servers, notifications = Apps(make=lambda _: ResourceApp()), Notifications()

    def app(number: int) -> ResourceApp:
        transport = servers.transports[number]
        assert isinstance(transport, ResourceApp)
        return transport

    async def subscribed(number: int, *uris: str) -> None:
        await eventually(lambda: app(number).subscribed == set(uris))

    async with (
        serve(servers, connected=False, message_handler=notifications.message) as client,
        notifications.subscribed(client, era, "note:///long"),
    ):
        session = (await called(client, "abp_connect", url=URL))["session"]  # connected after the subscription
        await subscribed(0, "note:///long")
        async with notifications.subscribed(client, era, "file:///x/picture.png"):
            await subscribed(0, "note:///long", "file:///x/picture.png")
            app(0).change("note:///long")
            await notifications.until("note:///long")
            app(0).change("file:///x/picture.png")
            await notifications.until("file:///x/picture.png")
            if era == "legacy":
                request = UnsubscribeRequest(params=UnsubscribeRequestParams(uri="file:///x/picture.png"))
                await client.session.send_request(request, EmptyResult)
        await subscribed(0, "note:///long")
        await called(client, "abp_disconnect", session=session)
        await called(client, "abp_connect", url=URL)
        await subscribed(1, "note:///long")
        app(1).change("note:///long")
        await notifications.until("note:///long")


@newer_era
async def test_gallery_and_client_watch_one_resource_independently(serve: Serve, era: str, tmp_path: Path) -> None:
    server, notifications = ResourceApp(), Notifications()
    apps = Apps(make=lambda _: server)
    async with (
        running(open_store(tmp_path / "out"), {}) as web,
        serve(apps, connected=False, activity=web.served.activity, message_handler=notifications.message) as client,
    ):
        session = (await called(client, "abp_connect", url=URL))["session"]
        resources = f"/resources/{session}"
        async with notifications.subscribed(client, era, "note:///long"):
            await eventually(lambda: server.subscribed)
            assert (await web.get(resources)).json["watched"] == []
            for change, watched in (("watch", ["note:///long"]), ("unwatch", [])):
                assert (await web.post(resources, {change: "note:///long"})).status == 204
                assert (await web.get(resources)).json["watched"] == watched
                server.change("note:///long")
                await notifications.until("note:///long")


# --- what apps say ----------------------------------------------------------------------------------------------------


async def speak(params: Mapping[str, object], call: Call) -> object:
    await call.notify("notifications/state/changed", {"page": 3})
    await call.notify("notifications/error", {"message": "no ink"})
    await call.notify("notifications/state/changed", "x" * 100_000)
    await asyncio.sleep(0.05)
    return None


@pytest.mark.requirement("R6-5h")
@pytest.mark.load
@both_eras
async def test_app_notifications_become_log_messages(serve: Serve, era: str) -> None:
    levels: list[tuple[Any, list[str]]] = [
        ("debug", ["info", "error", "info"]),
        ("warning", ["error"]),
        ("critical", []),
    ]
    said: list[LoggingMessageNotificationParams] = []

    async def log(params: LoggingMessageNotificationParams) -> None:
        said.append(params)

    async with serve(Apps({"speak": speak}), logging_callback=log) as client:
        if era != "legacy":  # a newer client gets none that it does not ask for
            await called(client, "abp_speak")
            assert said == []
        for level, expected in levels:
            said.clear()
            meta: dict[str, Any] = {}
            if era == "legacy":
                request = SetLevelRequest(params=SetLevelRequestParams(level=level))
                await client.session.send_request(request, EmptyResult)
            else:
                meta = {"meta": {"io.modelcontextprotocol/logLevel": level}}
            await client.call_tool("abp_speak", {}, **meta)
            await eventually(lambda: len(said) >= len(expected))  # noqa: B023
            assert [one.level for one in said] == expected
            if level == "debug":
                assert said[0].data == {"event": "notifications/state/changed", "data": {"page": 3}}
                assert said[0].logger and said[0].logger.startswith("abp.")
                assert len(str(said[2].data)) < 5000
