"""``python -m tests.hosts.inside SCENARIO ARGUMENT…``: what is done in the host's environment.

Each scenario prints facts as one JSON document; the tests outside judge them. Nothing of our test suite that needs more
than the package's own dependencies can be imported here.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import penguiflow.artifacts as host
from penguiflow.catalog import build_catalog, tool
from penguiflow.node import Node
from penguiflow.planner import ReactPlanner, ToolContext
from penguiflow.registry import ModelRegistry
from penguiflow.tools import ExternalToolConfig, ToolNode
from pydantic import BaseModel

from transports import BinaryData, MemoryTransport, Router, connect, open_store
from transports.artifacts import HostedStore, Scope, StoreForHost

PDF = b"%PDF-1.7\n" + b"x" * 2000
LONG = "a line of the log\n" * 1000


def _facade(store: host.ArtifactStore, session: str) -> host.ScopedArtifacts:
    return host.ScopedArtifacts(store, tenant_id="t", user_id="u", session_id=session, trace_id="x")


def _context(artifacts: host.ScopedArtifacts) -> ToolContext:
    """What a tool of the host needs of its context."""
    context: Any = SimpleNamespace(artifacts=artifacts, tool_context={}, llm_context={})
    return context


# --- our stores in the host's place -----------------------------------------------------------------------------------


async def behind_its_facade(url: str) -> Mapping[str, object]:
    """A store of ours behind ``ScopedArtifacts``, in two sessions."""
    store = StoreForHost(open_store(url), host.ArtifactRef)
    one, two = _facade(store, "one"), _facade(store, "two")
    ref = await one.upload(PDF, mime_type="application/pdf", filename="a.pdf", namespace="abp.resource", meta={"n": 1})
    text = await one.upload("grüße")
    same = await two.upload(PDF, filename="b.pdf")
    open_to_all = await store.put_bytes(b"for everybody")
    return {
        "is_store": isinstance(store, host.ArtifactStore),
        "found": host.discover_artifact_store(SimpleNamespace(artifact_store=store)) is store
        and host.discover_artifact_store(store) is store,
        "is_ref": isinstance(ref, host.ArtifactRef) and isinstance(ref.scope, host.ArtifactScope),
        "ref": ref.model_dump(),
        "again": (await one.get_metadata(ref.id)) == ref == host.ArtifactRef.model_validate(ref.model_dump()),
        "content": await one.download(ref.id) == PDF and await one.download(text.id) == "grüße".encode(),
        "text": text.model_dump(),
        "listed": [sorted(item.id for item in await facade.list()) for facade in (one, two)]
        == [sorted([ref.id, text.id]), [same.id]],
        "apart": same.id != ref.id
        and await two.download(ref.id) is None
        and not await two.exists(ref.id)
        and not await two.delete(ref.id),
        "open": await two.download(open_to_all.id) == b"for everybody",
        "deleted": [await one.delete(ref.id), await one.exists(ref.id), await one.download(ref.id)],
    }


async def behind_its_tools(url: str) -> Mapping[str, object]:
    """A store of ours behind a ``ToolNode``, whose server answers a PDF as base64 (docs/requirements.md R2-1.1)."""
    store = StoreForHost(open_store(url), host.ArtifactRef)
    server = f"{sys.executable} {Path(__file__).with_name('tableau.py')}"
    source = ToolNode(ExternalToolConfig(name="tableau", transport="mcp", connection=server), ModelRegistry())
    await source.connect()
    try:
        answer = await source.call("tableau.download_workbook", {}, _context(_facade(store, "one")))
    finally:
        await source.close()
    artifact = answer["result"]["content"]["artifact"]
    return {"name": answer["result"]["name"], "artifact": artifact, "content": await store.get(artifact["id"]) == PDF}


# --- the host's stores in our place -----------------------------------------------------------------------------------


async def _make_report(_call: object, _params: object) -> object:
    return {"document": BinaryData(PDF, "application/pdf", filename="report.pdf"), "log": LONG, "rows": 3}


async def with_its_stores() -> Mapping[str, object]:
    """Each kind of store of the host, in ``connect(store=…)`` and ``Router(…)``."""
    kept, facts = host.InMemoryArtifactStore(), {}
    stores: dict[str, Any] = {
        "store": kept,
        "facade": _facade(kept, "facade"),
        "state": SimpleNamespace(artifact_store=kept),
        "context": _context(_facade(kept, "context")),
        "nothing": host.NoOpArtifactStore(),
    }
    for name, store in stores.items():
        transport = MemoryTransport({"report.make": _make_report})
        async with connect("memory:", transport=transport, store=store) as app:
            result = await app.call("report.make")
            ref = result.artifacts["document"]
            theirs = await kept.get_ref(ref.id)
            facts[name] = {
                "document": ref.as_dict(),
                "log": result.artifacts["log"].mime_type,
                "kept": await kept.get(ref.id) == PDF and await kept.get(result.artifacts["log"].id) == LONG.encode(),
                "theirs": theirs and theirs.model_dump(),
                "readable": name != "nothing" and await app.store.get(ref.id) == PDF,
                "truncated": ref.source.get("truncated"),
            }
    routed = await Router(kept).route(
        {"content": base64.b64encode(PDF).decode(), "name": "Sales"}, capability="download_workbook"
    )
    facts["routed"] = {"kept": await kept.get(routed.artifacts["content"].id) == PDF}
    scope = Scope(tenant="t", user="u", session="s", trace="x")
    session = connect("memory:", transport=MemoryTransport({}), store=kept).store.scoped(scope)
    own, again = await session.put_bytes(b"mine"), await session.scoped(scope).put_bytes(b"mine")
    other = HostedStore(kept).scoped(Scope(tenant="t", session="other"))
    apart = await other.put_bytes(b"mine")
    facts["scopes"] = {
        "theirs": (await _required(kept, own.id)).scope.model_dump(),
        "same": own.id == again.id,
        "apart": apart.id != own.id and not await other.exists(own.id),
        "by_their_facade": await _facade(kept, "s").download(own.id) == b"mine"
        and await _facade(kept, "s").download(apart.id) is None,
    }
    return facts


async def _required(store: host.ArtifactStore, artifact_id: str) -> Any:
    ref = await store.get_ref(artifact_id)
    assert ref is not None
    return ref


# --- the page docs/hosts.md -------------------------------------------------------------------------------------------


class Page(BaseModel):
    html: str


class Printed(BaseModel):
    artifact: dict[str, Any]


class Scripted:
    """A model that has decided already: print the page, then finish. Keeps what it was shown."""

    def __init__(self) -> None:
        self.shown = ""
        self._actions = [
            {"next_node": "print_pdf", "args": {"html": "<h1>Report</h1>"}},
            {"next_node": "final_response", "args": {"answer": "printed"}},
        ]

    async def complete(self, *, messages: Any, **_: Any) -> str:
        self.shown = json.dumps(messages)
        return json.dumps(self._actions.pop(0))


async def by_the_book(page: str, app: str) -> Mapping[str, object]:
    """Run the program of ``docs/hosts.md`` against ``app``: a planner with the store, the tool, and the source."""
    code = Path(page).read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    assert "ws://127.0.0.1:8000/abp" in code
    book: dict[str, Any] = {"__name__": "book"}
    exec(compile(code.replace("ws://127.0.0.1:8000/abp", app), page, "exec"), book)
    store, source = book["store"], book["source"]

    @tool(desc="Print HTML as a PDF", side_effects="external")  # type: ignore[untyped-decorator]
    async def print_pdf(args: Page, ctx: ToolContext) -> Printed:
        return Printed(artifact=await book["print_pdf"](args.html, ctx))

    registry = ModelRegistry()
    registry.register("print_pdf", Page, Printed)
    model = Scripted()
    catalog = build_catalog([Node(print_pdf, name="print_pdf")], registry)
    planner = ReactPlanner(llm_client=model, catalog=catalog, artifact_store=store)
    await planner.run("print a report", tool_context={"tenant_id": "t", "session_id": "planned"})
    (printed,) = await store.list(scope=host.ArtifactScope(session_id="planned"))
    facade = _facade(store, "sourced")
    await source.connect()
    try:
        tools = [spec.name for spec in source.get_tools()]
        csv = await source.call("abp.abp_data_csv", {"rows": [{"a": 1, "b": "é"}]}, _context(facade))
        pdf = await source.call("abp.abp_export_pdf", {"html": "<h1>Hi</h1>"}, _context(facade))
    finally:
        await source.close()
    received = [_received(answer["result"]) for answer in (csv, pdf)]
    return {
        "printed": printed.model_dump(),
        "printed_content": (await store.get(printed.id))[:5].decode(),
        "model_saw_it": printed.id in model.shown,
        "tools": tools,
        "received": received,
        "contents": [(await store.get(block["artifact"]["id"]))[:20].decode(errors="replace") for block in received],
        "listed": sorted(ref.id for ref in await facade.list()),
    }


def _received(blocks: list[Any]) -> Any:
    (link,) = [block for block in blocks if isinstance(block, dict)]
    return link


SCENARIOS: Mapping[str, Callable[..., Coroutine[Any, Any, object]]] = {
    scenario.__name__: scenario for scenario in (behind_its_facade, behind_its_tools, with_its_stores, by_the_book)
}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(SCENARIOS[sys.argv[1]](*sys.argv[2:])), default=str))
