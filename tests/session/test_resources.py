"""Resources that were read are kept until the server reports a change."""

import asyncio
from pathlib import Path

import pytest

from tests.conftest import Connect
from tests.support.resources import ResourceApp
from transports import LocalStore


async def test_resource_is_reread_after_change_of_it_or_its_parent(app_of: Connect) -> None:
    server = ResourceApp()
    picture, note = "file:///x/picture.png", "note:///long"
    async with app_of(server) as app, app.events() as events:
        for changed in ("file:///x", picture):
            await app.resources.subscribe(changed)
            for _ in range(2):
                await app.resources.read(picture)
                await app.resources.read(note)
            kept = server.reads
            server.change(changed)
            await anext(events)  # the change has arrived
            await app.resources.read(note)
            assert server.reads == kept
            await app.resources.read(picture)
            assert server.reads == kept + 1
    assert server.reads == 4


async def test_list_capability_returns_the_page_of_its_cursor(app_of: Connect) -> None:
    async with app_of(ResourceApp()) as app:
        first = (await app.call("resources.list")).data
        last = (await app.call("resources.list", {"cursor": "more"})).data
    assert isinstance(first, dict) and first["nextCursor"] == "more"
    picture = {"uri": "file:///x/picture.png", "name": "picture.png", "mimeType": "image/png"}
    assert last == {"resources": [picture]}


async def test_list_without_an_end_is_cut_off(app_of: Connect, caplog: pytest.LogCaptureFixture) -> None:
    class EndlessApp(ResourceApp):
        def _list(self, cursor: str | None) -> dict[str, object]:
            page = [{"uri": f"note:///{number}", "name": "note"} for number in range(30_000)]
            return {"resources": page, "nextCursor": f"{cursor}+"}

    async with app_of(EndlessApp()) as app:
        assert len(await app.resources.list()) == 100_000
    assert caplog.messages == ["the app lists too many resources; all after the first 100,000 are left out"]


async def test_resource_that_changes_while_its_kept_result_is_checked_is_reread(
    app_of: Connect, tmp_path: Path
) -> None:
    server = ResourceApp()
    picture = "file:///x/picture.png"

    class ChangingStore(LocalStore):
        async def exists(self, artifact_id: str) -> bool:
            server.change(picture)
            await asyncio.sleep(0.05)  # the change arrives
            return await super().exists(artifact_id)

    async with ChangingStore(tmp_path / "out") as store, app_of(server, store=store) as app:
        await app.resources.subscribe(picture)
        for _ in range(2):
            await app.resources.read(picture)
    assert server.reads == 2
