"""Stores of host programs: a host's store in our place, ours in a host's place."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.rows import each_row
from transports import BinaryData, MemoryTransport, Router, connect
from transports.artifacts import (
    ArtifactRef,
    ArtifactStore,
    HostedStore,
    HostFacade,
    HostStore,
    MemoryStore,
    Query,
    Scope,
    StoreForHost,
    discover_store,
    find,
    open_store,
)
from transports.errors import ArtifactNotFound, Corrupt, StoreError, TooLarge, UsageError

PDF = b"%PDF-1.7\n" + b"x" * 100
OTHER = b"%PDF-1.7\n" + b"y" * 100


# --- hosts ------------------------------------------------------------------------------------------------------------


@dataclass
class SmallRef:
    """The reference of docs/requirements.md R2-5.4."""

    id: str
    mime_type: str | None = None
    size_bytes: int | None = None
    filename: str | None = None
    sha256: str | None = None
    source: dict[str, Any] = field(default_factory=dict)


class FiveMethods:
    """A store with the methods of docs/requirements.md R2-5.2 and no other, with ids as in R2-5.3."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.refs: list[SmallRef] = []
        self.texts: list[str] = []

    async def put_bytes(
        self,
        data: bytes,
        *,
        mime_type: str | None = None,
        filename: str | None = None,
        namespace: str | None = None,
        meta: dict[str, Any] | None = None,
    ) -> SmallRef:
        digest = hashlib.sha256(data).hexdigest()
        ref = SmallRef(f"{namespace}_{digest[:12]}", mime_type, len(data), filename, digest, meta or {})
        self.contents[ref.id] = data
        self.refs.append(ref)
        return ref

    async def put_text(
        self,
        text: str,
        *,
        mime_type: str = "text/plain",
        filename: str | None = None,
        namespace: str | None = None,
        meta: dict[str, Any] | None = None,
    ) -> SmallRef:
        self.texts.append(text)
        return await self.put_bytes(
            text.encode(), mime_type=mime_type, filename=filename, namespace=namespace, meta=meta
        )

    async def get(self, artifact_id: str) -> bytes | None:
        return self.contents.get(artifact_id)

    async def delete(self, artifact_id: str) -> bool:
        return self.contents.pop(artifact_id, None) is not None

    async def exists(self, artifact_id: str) -> bool:
        return artifact_id in self.contents


@dataclass
class Owner:
    """A host's scope (docs/requirements.md R2-7.2)."""

    tenant_id: str | None = None
    user_id: str | None = None
    session_id: str | None = None
    trace_id: str | None = None


@dataclass
class FullRef(SmallRef):
    """A host's reference with everything that hosts have."""

    scope: Owner | None = None
    namespace: str | None = None


class FullHost(FiveMethods):
    """A store that knows scopes, describes and lists. Like public ones it merges equal content of one namespace and
    then answers with the reference that was first."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, FullRef] = {}

    async def put_bytes(
        self,
        data: bytes,
        *,
        mime_type: str | None = None,
        filename: str | None = None,
        namespace: str | None = None,
        scope: Owner | None = None,
        meta: dict[str, Any] | None = None,
    ) -> FullRef:
        plain = await super().put_bytes(data, mime_type=mime_type, filename=filename, namespace=namespace, meta=meta)
        return self.kept.setdefault(plain.id, FullRef(**vars(plain), scope=scope, namespace=namespace))

    async def put_text(self, text: str, *, scope: Owner | None = None, **about: Any) -> FullRef:
        return await self.put_bytes(text.encode(), scope=scope, **about)

    async def get_ref(self, artifact_id: str) -> FullRef | None:
        return self.kept.get(artifact_id)

    async def delete(self, artifact_id: str) -> bool:
        self.kept.pop(artifact_id, None)
        return await super().delete(artifact_id)

    async def list(self, *, scope: Owner | None = None) -> list[FullRef]:
        wanted = {name: value for name, value in vars(scope or Owner()).items() if value is not None}
        return [ref for ref in self.kept.values() if wanted.items() <= vars(ref.scope or Owner()).items()]


class Facade:
    """What tools of a host get: one scope, in which they upload and download."""

    def __init__(self, store: FullHost, scope: Owner) -> None:
        self._store, self.scope = store, scope

    async def upload(self, data: bytes | str, **about: Any) -> FullRef:
        if isinstance(data, str):
            return await self._store.put_text(data, scope=self.scope, **about)
        return await self._store.put_bytes(data, scope=self.scope, **about)

    async def _own(self, artifact_id: str) -> FullRef | None:
        ref = await self._store.get_ref(artifact_id)
        return ref if ref and ref.scope and ref.scope.session_id == self.scope.session_id else None

    async def download(self, artifact_id: str) -> bytes | None:
        return await self._store.get(artifact_id) if await self._own(artifact_id) else None

    async def get_metadata(self, artifact_id: str) -> FullRef | None:
        return await self._own(artifact_id)

    async def exists(self, artifact_id: str) -> bool:
        return await self._own(artifact_id) is not None

    async def delete(self, artifact_id: str) -> bool:
        return await self._own(artifact_id) is not None and await self._store.delete(artifact_id)

    async def list(self) -> list[FullRef]:
        return await self._store.list(scope=Owner(session_id=self.scope.session_id))


async def _report(_call: object, params: object) -> object:
    return {
        "document": BinaryData(PDF, "application/pdf", filename="report.pdf"),
        "log": "a line of the log\n" * 1000,
        "rows": 3,
    }


# --- the whole path over the five methods -----------------------------------------------------------------------------


@pytest.mark.requirement("R2-5.2a", "R2-5.2b", "R2-5.2g")
async def test_minimal_host_store_supports_full_call_path(tmp_path: Path) -> None:
    host = FiveMethods()
    transport = MemoryTransport({"report.make": _report})
    async with connect("memory:", transport=transport, store=host) as app:
        result = await app.call("report.make")
        ref = result.artifacts["document"]
        assert host.contents[ref.id] == PDF and ref.path is None
        assert (ref.filename, ref.mime_type, ref.size_bytes) == ("report.pdf", "application/pdf", len(PDF))
        await app.save(ref, tmp_path / "saved.pdf")
        assert (tmp_path / "saved.pdf").read_bytes() == PDF
        assert {one.id for one in await app.store.list()} == {one.id for one in host.refs}
    assert isinstance(result.data, dict) and result.data["rows"] == 3
    assert isinstance(result.data["document"], dict) and result.data["document"]["id"] == ref.id
    assert host.texts == ["a line of the log\n" * 1000] and "log" in result.artifacts
    given = host.refs[0]
    assert (given.filename, given.mime_type, given.id) == ("report.pdf", "application/pdf", ref.id)
    assert given.id.startswith("report_make_") and given.source["capability"] == "report.make"
    assert ref.id in result.summary() or "report.pdf" in result.summary()


@pytest.mark.parametrize("take", [Router, lambda store: connect("memory:", transport=MemoryTransport({}), store=store)])
def test_object_with_store_is_accepted_and_others_are_rejected(take: Callable[[object], object]) -> None:
    take(SimpleNamespace(artifact_store=FiveMethods()))
    take(SimpleNamespace(artifacts=Facade(FullHost(), Owner())))
    with pytest.raises(UsageError, match="takes a store"):
        take(SimpleNamespace(artifact_store=5))
    with pytest.raises(UsageError, match=r"a store, .* or an object that has one, not dict"):
        take({})


@pytest.mark.requirement("R2-5.2h")
def test_store_is_discovered_on_host_object() -> None:
    ours = MemoryStore()

    class Duck:
        """Not one of ours by class, but by its methods."""

        def __getattr__(self, name: str) -> object:
            if name.startswith("_") or name == "artifact_store":
                raise AttributeError(name)
            return getattr(ours, name)

    duck: Any = Duck()
    for found in (ours, duck):
        assert discover_store(found) is discover_store(SimpleNamespace(artifact_store=found)) is found
    five, full = FiveMethods(), FullHost()
    facade = Facade(full, Owner())
    hosts: list[object] = [five, full, facade, SimpleNamespace(artifact_store=five), SimpleNamespace(artifacts=facade)]
    for host in hosts:
        hosted = discover_store(host, max_bytes=7)
        assert isinstance(hosted, HostedStore) and hosted.max_bytes == 7
    for host in [StoreForHost(ours, FullRef), SimpleNamespace(artifact_store=StoreForHost(ours, FullRef))]:
        assert discover_store(host) is ours
    others = (None, "text", {"a": 1}, FiveMethods, SimpleNamespace(artifact_store=None))  # a class is no store
    for other in (*others, SimpleNamespace(artifact_store=object(), artifacts={})):
        assert discover_store(other) is None  # some methods of these names are not enough
    assert isinstance(five, HostStore) and not isinstance(five, HostFacade)
    assert isinstance(facade, HostFacade) and not isinstance(facade, HostStore)


# --- a host's store with our contract ---------------------------------------------------------------------------------


@pytest.fixture(params=["five methods", "all methods", "facade"])
def store(request: pytest.FixtureRequest) -> ArtifactStore:
    hosts = {"five methods": FiveMethods(), "all methods": FullHost(), "facade": Facade(FullHost(), Owner("t", "u"))}
    found = discover_store(hosts[request.param])
    assert found is not None
    return found


async def test_put_read_list_delete(store: ArtifactStore) -> None:
    ref = await store.put_bytes(PDF, filename="a.pdf", size=len(PDF), namespace="x")
    assert await store.get(ref.id) == PDF and await store.get(ref.id, offset=5, length=3) == PDF[5:8]
    assert await store.stat(ref.id) == ref and await store.exists(ref.id) and await store.list() == [ref]
    text = await store.put_text("grüße", namespace="x")
    assert await store.get(text.id) == "grüße".encode() and text.mime_type == "text/plain"
    async with store.stage() as staged:
        staged.path.write_bytes(OTHER)
        other = await staged.commit(filename="b.pdf")
    assert await store.get(other.id) == OTHER and len(await store.list()) == 3
    assert (await store.fsck()).artifacts == 3 and await store.gc() == []
    assert await store.delete(ref.id) and not await store.delete(ref.id)
    for missing in (ref.id, "nobody_0123"):
        assert not await store.exists(missing)
        assert await store.get(missing) is None
    assert len(await store.list()) == 2
    with pytest.raises(UsageError, match="UTF-8"):
        await store.put_text("\ud800")


async def test_host_pages_list_each_file_once_regardless_of_times() -> None:
    host = FullHost()  # keeps no times of what others store in it
    ids = [(await host.put_bytes(b"%d" % number, namespace="x")).id for number in range(7)]
    assert ids != sorted(ids)
    store = HostedStore(host)
    assert [ref.id for ref in await store.list()] == sorted(ids)
    paged: list[ArtifactRef] = []
    cursor: str | None = None
    while (page := await find(store, Query(limit=2, cursor=cursor))).next:
        paged += page.artifacts
        cursor = page.next
    assert [ref.id for ref in [*paged, *page.artifacts]] == sorted(ids, reverse=True)


async def test_store_scopes_stay_separate_where_host_merges_content(store: ArtifactStore) -> None:
    one, two = (store.scoped(Scope(session=name)) for name in ("one", "two"))
    first, second = await one.put_bytes(PDF, filename="a.pdf"), await two.put_bytes(PDF, filename="b.pdf")
    assert (first.scope, second.scope) == (Scope(session="one"), Scope(session="two")) and first.id != second.id
    for view, own, foreign in ((one, first, second), (two, second, first)):
        assert await view.list() == [own] and await view.get(own.id) == PDF
        assert not await view.exists(foreign.id) and not await view.delete(foreign.id)
        assert await view.get(foreign.id) is None
        with pytest.raises(ArtifactNotFound):
            await view.get(foreign)
    assert await one.delete(first.id)
    assert await two.get(second.id) == PDF and await one.list() == []


async def test_copy_shared_by_two_scopes_stays_until_both_remove_it() -> None:
    class OneCopy(FiveMethods):
        async def put_bytes(self, data: bytes, **about: Any) -> SmallRef:
            return await super().put_bytes(data, **(about | {"namespace": "same"}))

    store = HostedStore(OneCopy())
    one, two = (store.scoped(Scope(session=name)) for name in ("one", "two"))
    ref = await one.put_bytes(PDF)
    assert (await two.put_bytes(PDF)).id == ref.id
    assert await one.delete(ref.id) and not await one.exists(ref.id)
    assert await two.get(ref.id) == PDF
    assert await two.delete(ref.id) and not await store.exists(ref.id)


async def test_host_scopes_and_refs_are_translated() -> None:
    host = FullHost()
    whole = Scope(tenant="t", user="u", session="s", trace="x")
    ref = await HostedStore(host).scoped(whole).put_bytes(PDF, filename="a.pdf", meta={"step": 3})
    theirs = await host.get_ref(ref.id)
    assert theirs is not None and theirs.scope == Owner("t", "u", "s", "x")
    assert (theirs.filename, theirs.mime_type, theirs.source["step"]) == ("a.pdf", "application/pdf", 3)
    assert await HostedStore(host).stat(ref.id) == ref  # by another one, which remembers nothing
    assert await HostedStore(host).scoped(Scope(tenant="t")).list() == [ref]
    assert await HostedStore(host).scoped(Scope(tenant="other")).list() == []


async def test_facts_missing_in_host_are_derived_from_content() -> None:
    five = FiveMethods()
    five.contents["x-1"] = PDF
    ref = await HostedStore(five).stat("x-1")
    assert (ref.mime_type, ref.size_bytes, ref.filename) == ("application/pdf", len(PDF), "x-1.pdf")
    assert ref.sha256 == hashlib.sha256(PDF).hexdigest()
    full = FullHost()
    full.kept["y"], full.contents["y"] = FullRef("y", filename="../../etc/x.pdf", scope=Owner(session_id="s")), PDF
    (listed,) = await HostedStore(full).list()
    assert listed.filename == "x.pdf" and listed.scope == Scope(session="s") and listed.size_bytes == len(PDF)


async def test_content_removed_by_host_is_not_found() -> None:
    host = FiveMethods()
    store = HostedStore(host)
    asked, listed, other = [await store.put_bytes(data) for data in (PDF, OTHER, b"x")]
    host.contents.clear()
    with pytest.raises(ArtifactNotFound):
        await store.stat(asked.id)
    assert await store.list() == [] and not await store.exists(asked.id)
    for ref in (listed, other):
        with pytest.raises(ArtifactNotFound):
            await store.stat(ref.id)


async def test_failing_or_lying_host_raises_store_error() -> None:
    class Broken(FiveMethods):
        answer: object = None

        async def put_bytes(self, data: bytes, **about: Any) -> Any:
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer

    host = Broken()
    store = HostedStore(host)
    for answer, message in (
        (ValueError("too large for me"), "host:Broken.*ValueError: too large for me "),
        (OSError("no way to db://me:secret@host/x\nmore"), "OSError: no way to db://<redacted>@host/x "),
        (SmallRef("a", size_bytes=50), "50 bytes instead of 109"),
        (SmallRef("a", sha256="0" * 64), "another hash"),
        (SmallRef(""), "without an id"),
        (None, "NoneType without an id"),
    ):
        host.answer = answer
        with pytest.raises(StoreError, match=message):
            await store.put_bytes(PDF)
        assert await store.list() == []
    with pytest.raises(TooLarge):
        await HostedStore(FiveMethods(), max_bytes=100).put_bytes(PDF)


async def test_content_changed_in_host_is_reported_corrupt() -> None:
    host = FiveMethods()
    store = HostedStore(host)
    ref = await store.put_bytes(PDF)
    host.contents[ref.id] = OTHER
    with pytest.raises(Corrupt):
        await store.get(ref.id)
    assert [problem.id for problem in (await store.fsck()).problems] == [ref.id]


async def test_facade_determines_artifact_scope() -> None:
    host = FullHost()
    mine = HostedStore(Facade(host, Owner("t", "u", "mine", "trace")))
    theirs = HostedStore(Facade(host, Owner("t", "u", "theirs", "trace")))
    ref, other = await mine.put_bytes(PDF), await theirs.put_bytes(PDF)
    assert ref.scope == Scope("t", "u", "mine", "trace") and other.scope.session == "theirs" and ref.id != other.id
    assert await theirs.get(other.id) == PDF and not await theirs.exists(ref.id)


async def test_empty_owner_is_rejected() -> None:
    """Left out, it would open the artifact to everybody."""
    store = StoreForHost(MemoryStore(), FullRef)
    with pytest.raises(UsageError, match="user"):
        await store.put_bytes(PDF, scope=Owner(user_id=""))


# --- our stores with a host's protocol --------------------------------------------------------------------------------


@pytest.fixture(params=["local", "memory", "bucket"])
def ours(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    address = {"local": str(tmp_path / "out"), "memory": "memory:"}.get(request.param)
    return open_store(address or request.getfixturevalue("memory_bucket"))


@pytest.mark.requirement("R2-5.2d")
async def test_every_store_type_works_as_host_store(ours: ArtifactStore) -> None:
    host = StoreForHost(ours, FullRef)
    scope = Owner("t", "u", "s", "x")
    ref = await host.put_bytes(PDF, mime_type="application/pdf", namespace="tool.resource", scope=scope, meta={"n": 1})
    assert isinstance(ref, FullRef) and ref.scope == scope and ref.namespace == "tool.resource"
    assert (ref.mime_type, ref.size_bytes, ref.sha256) == (
        "application/pdf",
        len(PDF),
        hashlib.sha256(PDF).hexdigest(),
    )
    assert ref.source["n"] == 1 and ref.source["uri"] == f"artifact://{ref.id}"
    if ours.url.startswith("file:"):
        assert Path(ref.source["path"]).read_bytes() == PDF
    text = await host.put_text("grüße", filename="a.txt")
    assert text.scope is None and text.namespace is None and await host.get(text.id) == "grüße".encode()
    assert await host.get_ref(ref.id) == ref and await host.get(ref.id) == PDF and await host.exists(ref.id)
    assert await host.list(scope=Owner(session_id="s")) == [ref] and len(await host.list()) == 2
    assert await host.delete(ref.id) and not await host.delete(ref.id) and not await host.exists(ref.id)
    assert await host.get(ref.id) is None and await host.get_ref(ref.id) is None


class TinyRef:
    """Without a place for other facts."""

    def __init__(self, id: str, filename: str) -> None:
        self.id = id
        self.filename = filename


def late_ref(id: str, scope: NotYetKnown = None, source: object = None) -> SimpleNamespace:  # type: ignore[name-defined]  # noqa: F821
    return SimpleNamespace(id=id, scope=scope, source=source)


@each_row("reference", [dict, TinyRef, SmallRef, late_ref])
async def test_reference_may_be_any_function_of_keywords(reference: Callable[..., Any]) -> None:
    host: StoreForHost[Any] = StoreForHost(MemoryStore(), reference)
    namespace = "x" if reference is SmallRef else None
    made = await host.put_bytes(PDF, filename="a.pdf", namespace=namespace, scope={"session_id": "s"}, meta={"n": 1})
    facts = made if isinstance(made, dict) else vars(made)
    assert await host.get(facts["id"]) == PDF and facts.get("filename", "a.pdf") == "a.pdf"
    if reference is SmallRef:  # facts for which it has no place are in its source
        source = facts["source"]
        assert (source["n"], source["scope"], source["namespace"]) == (1, {"session": "s"}, "x")
    elif reference is not TinyRef:
        assert facts["source"]["n"] == 1 and facts["scope"].session_id == "s"


async def test_session_writes_into_store_given_to_host() -> None:
    """Both ways at once: the host has a store of ours, and a tool of it gives its facade to a session."""
    ours = MemoryStore()
    facade = Facade(StoreForHost(ours, FullRef), Owner("t", "u", "s"))  # type: ignore[arg-type]
    async with connect("memory:", transport=MemoryTransport({"report.make": _report}), store=facade) as app:
        ref = (await app.call("report.make")).artifacts["document"]
    assert (await ours.stat(ref.id)).scope == ref.scope == Scope("t", "u", "s")
    assert await ours.get(ref.id) == PDF and await facade.download(ref.id) == PDF
