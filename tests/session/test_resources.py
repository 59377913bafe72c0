"""Resources that were read are kept until the server reports a change."""

import asyncio
from pathlib import Path

import pytest

from tests.conftest import Connect
from tests.support.apps import answering
from tests.support.resources import LONG, ResourceApp
from transports import CallTimeout, LocalStore, RoutingPolicy
from transports.protocol.messages import Message
from transports.routing import ResourcePolicy


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


async def test_long_text_without_a_type_is_plain_text(app_of: Connect) -> None:
    server = ResourceApp()
    types: dict[str, object] = {"none": None, "empty": "", "number": 5, "markdown": "text/markdown"}
    server.resources |= {f"note:///{name}": {"mimeType": mime_type, "text": LONG} for name, mime_type in types.items()}
    async with app_of(server) as app:
        results = [await app.resources.read(f"note:///{name}") for name in types]
    assert [result.artifact().mime_type for result in results] == [*["text/plain"] * 3, "text/markdown"]


async def test_list_capability_returns_the_page_of_its_cursor(app_of: Connect) -> None:
    async with app_of(ResourceApp()) as app:
        first = (await app.call("resources.list")).data
        last = (await app.call("resources.list", {"cursor": "more"})).data
    assert isinstance(first, dict) and first["nextCursor"] == "more"
    picture = {"uri": "file:///x/picture.png", "name": "picture.png", "mimeType": "image/png"}
    assert last == {"resources": [picture]}


@pytest.mark.parametrize(("size", "listed"), [(1, 1_000), pytest.param(30_000, 100_000, marks=pytest.mark.slow)])
async def test_list_without_an_end_is_cut_off(
    app_of: Connect, caplog: pytest.LogCaptureFixture, size: int, listed: int
) -> None:
    class EndlessApp(ResourceApp):
        def _list(self, cursor: str | None) -> dict[str, object]:
            page = [{"uri": f"note:///{number}", "name": "note"} for number in range(size)]
            return {"resources": page, "nextCursor": "more"}

    async with app_of(EndlessApp()) as app:
        assert len(await app.resources.list()) == listed
    assert caplog.messages == [f"the app lists too many resources; all after the first {listed:,} are left out"]


class SlowApp(ResourceApp):
    async def request(self, message: Message, *, timeout: float) -> Message:
        if message.type.startswith("resources/"):
            await asyncio.sleep(0.1)
        return await super().request(message, timeout=timeout)

    def _list(self, cursor: str | None) -> dict[str, object]:
        return {"resources": [], "nextCursor": f"{cursor}+"}


async def test_timeout_of_a_list_is_for_all_its_pages(app_of: Connect) -> None:
    async with app_of(SlowApp()) as app, asyncio.timeout(20):
        with pytest.raises(CallTimeout, match=r"no answer to resources.list within 0\.25 s"):
            await app.resources.list(timeout=0.25)


async def test_links_of_an_answer_are_read_within_one_timeout(app_of: Connect) -> None:
    links = [{"type": "resource_link", "uri": "file:///x/picture.png", "size": 1} for _ in range(200)]
    policy = RoutingPolicy(resources=ResourcePolicy(auto_read_if_size_under_bytes=100, cache_reads_to_artifacts=False))
    async with app_of(SlowApp({"links": answering({"content": links})}), routing=policy) as app, asyncio.timeout(20):
        data = (await app.call("links", timeout=0.5)).data
    assert isinstance(data, dict)
    reasons = [block["fetch_error"] for block in data["content"]]  # type: ignore[index, call-overload, union-attr]
    assert reasons[-1] == "the links before it took all the time"
    assert reasons.count(reasons[-1]) > 190


@pytest.mark.parametrize(("limit", "is_read"), [(0, False), (5, False), (6, True)])
async def test_link_is_read_below_the_size_of_the_policy(app_of: Connect, limit: int, is_read: bool) -> None:
    link = {"type": "resource_link", "uri": "note:///a b?c=d", "size": 5}
    policy = RoutingPolicy(resources=ResourcePolicy(auto_read_if_size_under_bytes=limit))
    async with app_of(ResourceApp({"links": answering({"content": [link]})}), routing=policy) as app:
        data = (await app.call("links")).data
    assert isinstance(data, dict) and data["content"][0]["fetched"] is is_read  # type: ignore[index, call-overload]


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


async def test_file_of_a_resource_is_named_by_its_decoded_address(app_of: Connect) -> None:
    names = {
        "file:///d/Report%20%233.txt": "Report #3.txt",
        "https://a.example/why%3F.txt?page=1#top": "why.txt",
        "note:///d/a%2Fb.txt": "b.txt",
    }
    server = ResourceApp()
    server.resources |= {uri: {"mimeType": "text/plain", "text": LONG} for uri in names}
    async with app_of(server) as app:
        assert {uri: (await app.resources.read(uri)).artifact().filename for uri in names} == names
