"""The router, and the storing of files that come with answers and calls.

* :class:`Router` — stores the files of an answer and puts references in their places, by the finds of :mod:`._layers`.
* :class:`Storing` — files, long texts and JSON of answers in one store, with secrets masked.
* :class:`Unkept` — the reference of a JSON answer that a ``none:`` store does not keep, made on demand.
* :func:`accept_files` — files that are given with a call, checked and stored; :func:`auto_read_safe` and other checks
  before a model reads a file.
"""

from __future__ import annotations

import mimetypes
import os
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from io import FileIO
from itertools import count
from pathlib import Path
from typing import ParamSpec, TypedDict, TypeVar, Unpack, cast

from .._internal.privacy._secrets import MAX_MASKED_BYTES, KnownSecrets, known_to
from .._internal.tasks import in_thread
from .._internal.telemetry._instruments import span
from ..artifacts._base import ArtifactStore, Staged
from ..artifacts._content import Durability, PutOptions
from ..artifacts._files import map_os_errors, pieces_of, read_at
from ..artifacts._hosts import HostFacade, HostStore
from ..artifacts._none import NoneStore
from ..artifacts._opening import discover_store
from ..artifacts._ref import ArtifactRef
from ..errors import ABPError, BadDescriptor, BadEncoding, BinaryError, TooLarge, UsageError, checked
from ..protocol._find_content import DESCRIPTOR_KEYS, Found, Place, field_of, replace
from ..protocol._media import OCTET_STREAM, contradicts, is_binary_mime, normalise_mime, sniff
from ..protocol._plain_text import redact_url
from ..protocol._strict_json import JSONValue, encode_json
from ..protocol.binary import BinaryData, Encoded, LocalFile
from ..protocol.messages import Effect, Sender
from ..protocol.schema import check_output
from ._guard import MAX_BYTES, clamp
from ._layers import Fetcher, Layers, OnDownload, Recognised, fill_summary
from ._policy import ABP, OnRoutingEvent, RoutingPolicy, Step, TransformContext
from ._result import Result, is_long, long_texts, preview, shorten


def reference_for(ref: ArtifactRef, found: Found) -> dict[str, object]:
    """Return the reference of stored content, with the other fields of its descriptor as ``metadata``."""
    extra = reference_metadata(found)
    return {**ref.as_dict(), "metadata": dict(extra)} if extra else ref.as_dict()


def reference_metadata(found: Found) -> Mapping[str, object]:
    """Return the fields of a descriptor that do not describe its content."""
    return found.binary.extra if isinstance(found.binary, BinaryData) else {}


def declared_text(found: Found) -> str | None:
    """Return the text of a descriptor whose content is UTF-8 text, or ``None`` (docs/protocol.md 9.3)."""
    content = found.binary.content if isinstance(found.binary, BinaryData) and found.layer == "abp" else None
    return str(content.text) if isinstance(content, Encoded) and content.encoding == "utf-8" else None


def metadata_of(data: object, found: Sequence[Found], refs: Collection[Place] = ()) -> Mapping[str, object]:
    """Return the metadata of an answer: its fields that hold no content (docs/protocol.md 12.2).

    ``refs`` are the places of references that the answer itself held."""
    if () in refs:
        return {}
    if found and found[0].path == ():
        return found[0].binary.extra if isinstance(found[0].binary, BinaryData) else {}
    used = {item.path[0] for item in found} | {place[0] for place in refs}
    if any(item.is_flat and len(item.path) == 1 for item in found):
        used |= DESCRIPTOR_KEYS
    return {key: value for key, value in data.items() if str(key) not in used} if isinstance(data, dict) else {}


def captured_places(data: object, found: Sequence[Found]) -> Iterator[Place]:
    """Yield places for files that the app produced beside its answer (docs/protocol.md 12.6).

    The first is ``document`` if the answer has no file and no field of that name. Then follow ``captured.0``,
    ``captured.1`` and so on, except for places of files in the answer.
    """
    free = not found and not (isinstance(data, dict) and "document" in data)
    if free:
        yield ("document",)
    used = {item.path for item in found}
    yield from (place for n in count(1 if free else 0) if (place := ("captured", n)) not in used)


class Unkept(Mapping[str, ArtifactRef]):
    """Artifacts of a JSON answer that a ``none:`` store does not keep: one reference under ``""``, made on demand.

    Hashing and naming wait until the reference is read; they would dominate a small call.
    """

    __slots__ = ("_data", "_made", "_now", "_origin", "_store")

    def __init__(self, store: NoneStore, data: bytes, origin: Mapping[str, object]) -> None:
        self._store = store
        self._data = data
        self._origin = origin
        self._now = time.time()
        self._made: ArtifactRef | None = None

    def __getitem__(self, place: str) -> ArtifactRef:
        if place != "":
            raise KeyError(place)
        if self._made is None:
            self._made = self._store.describe(
                self._data,
                mime_type="application/json",
                namespace=str(self._origin["capability"]),
                meta=self._origin,
                now=self._now,
            )
        return self._made

    def __iter__(self) -> Iterator[str]:
        return iter(("",))

    def __len__(self) -> int:
        return 1

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> tuple[object, ...]:
        return dict, (dict(self),)


def unkept(store: ArtifactStore, data: bytes, origin: Mapping[str, object]) -> Unkept | None:
    """Return the artifacts of a JSON answer, ``data``, for a store that keeps nothing; ``None`` if it keeps or audits.

    ``origin`` is the ``source`` of the reference, with the capability."""
    if not isinstance(store, NoneStore) or store.audit or len(data) > store.max_bytes:
        return None
    for value in origin.values():
        if type(value) is not str:
            return None  # the store must check other values now, not when the reference is read
    store.warn_once()
    return Unkept(store, data, origin)


def masked(staged: Staged, known: KnownSecrets) -> Staged:
    """Return ``staged`` with ``known`` values masked in its content (:meth:`.KnownSecrets.mask`).

    Without known values, that is ``staged`` itself."""
    return _MaskedStaged(staged, known) if known else staged


class _MaskedStaged(Staged):
    """Staged file that masks its content when it is committed.

    Written content is held in memory until then; content above ``MAX_MASKED_BYTES`` is passed on unmasked."""

    def __init__(self, staged: Staged, known: KnownSecrets) -> None:
        self._known = known
        self._staged = staged
        self._kept: bytearray | None = bytearray()

    @property
    def path(self) -> Path:
        return self._staged.path

    @property
    def size(self) -> int:
        return self._staged.size + len(self._kept or b"")

    async def write(self, chunk: bytes | memoryview) -> None:
        if self._kept is None:
            await self._staged.write(chunk)
            return
        self._kept += chunk
        if len(self._kept) > MAX_MASKED_BYTES:
            kept, self._kept = bytes(self._kept), None
            await self._staged.write(kept)

    async def reset(self) -> None:
        self._kept = bytearray()
        await self._staged.reset()

    def follow(self) -> None:
        """Follow the wrapped file: only large files are followed, and those are not masked."""
        self._staged.follow()

    async def commit(self, **options: Unpack[PutOptions]) -> ArtifactRef:
        if self._kept:
            kept, self._kept = bytes(self._kept), None
            await self._staged.write(await in_thread(self._known.mask, kept))
        elif self._kept is not None:
            with map_os_errors("mask a file", self.path.parent):
                await in_thread(_mask_file, self.path, self._known)
        return await self._staged.commit(**options)


def _mask_file(path: Path, known: KnownSecrets) -> None:
    """Mask a file that another program wrote, in place."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_MASKED_BYTES:
        return
    content = path.read_bytes()
    found = known.mask(content)
    if found != content:
        with path.open("r+b") as file:
            file.write(found)


class Storing:
    """Writer of the parts of answers into one store, under one policy.

    ``fetcher`` brings content that is not in the answer; ``durability`` is for answers without a file."""

    def __init__(self, store: ArtifactStore, fetcher: Fetcher, policy: RoutingPolicy, durability: Durability) -> None:
        self._durability = durability
        self._store = store
        self._known = known_to(store.scope.holder)
        self._fetcher = fetcher
        self._policy = policy

    async def json(
        self,
        routed: JSONValue,
        encoded: bytes,
        capability: str,
        origin: Mapping[str, object],
        stored: dict[str, ArtifactRef],
        steps: list[Step],
        *,
        alone: bool,
        shorter_than: int | None = None,
        large: bool = False,
    ) -> dict[Place, JSONValue]:
        """Store long texts as files, and the whole answer as JSON if it is large or ``alone``, without files.

        An answer without data is not stored. ``shorter_than`` is that of :class:`~._layers.Recognised`; a ``large``
        answer is searched in a thread. Adds to ``stored`` and ``steps``; returns the previews that agents see in the
        place of long texts.
        """
        policy = self._policy
        durability: Durability = self._durability if alone else "disk"
        previews: dict[Place, JSONValue] = {}
        limit = policy.max_inline_chars
        if limit is not None and len(encoded) > limit and (shorter_than is None or shorter_than > limit):
            found = await in_thread(long_texts, routed, limit) if large else long_texts(routed, limit)
            long = [item for item in found if field_of(item[0]) not in stored]
            for place, text, mime_type in sorted(long, key=lambda item: -len(item[1]))[: policy.max_texts]:
                ref = await self._store.put_text(
                    text, mime_type=mime_type, namespace=capability, meta=origin, durability=durability
                )
                stored[field_of(place)] = ref
                previews[place] = preview(text, ref)
                steps.append(Step("size", field_of(place), f"{len(text):,} characters, {stored_as(ref, 'also ')}"))
        over = policy.max_inline_bytes is not None and len(encoded) > policy.max_inline_bytes
        if routed is not None and (alone or (over and "" not in stored)):
            ref = await self._store.put_bytes(
                encoded, mime_type="application/json", namespace=capability, meta=origin, durability=durability
            )
            stored[""] = ref
            if over:
                steps.append(Step("size", "", f"{len(encoded):,} bytes of JSON, {stored_as(ref, 'also ')}"))
        if isinstance(routed, str) and is_long(routed, policy.max_inline_chars) and "" in stored:
            previews[()] = preview(routed, stored[""])
        return previews

    def text_previews(self, texts: Mapping[Place, str], stored: Mapping[str, ArtifactRef]) -> dict[Place, JSONValue]:
        """Return the previews that agents see in the place of each long ``text`` beside a reference."""
        limit = self._policy.max_inline_chars
        return {
            (*place, "text"): shorten(text, stored=stored[field_of(place)].stored)
            for place, text in texts.items()
            if is_long(text, limit)
        }

    async def file(
        self,
        item: Found,
        capability: str,
        origin: Mapping[str, object],
        on_download: OnDownload | None,
        sender: Sender | None = None,
    ) -> ArtifactRef:
        """Store a file of an answer that came from ``sender``, and release content on the far side.

        Raises the error of an invalid descriptor, and errors of the store and the fetcher."""
        binary = item.binary
        if isinstance(binary, ABPError):
            raise binary
        content = binary.content
        if isinstance(content, bytes) or (isinstance(content, Encoded) and len(content.text) <= _SMALL):
            return await self._store.put_bytes(
                await self._masked(content if isinstance(content, bytes) else b"".join(binary.chunks())),
                **self._options(binary, capability, origin),
            )
        fetcher = self._fetcher.asked_by(sender)
        try:
            async with self._store.stage() as stage:
                staged = masked(stage, self._known)
                with span("abp.transfer", {}):
                    known, warnings = await fetcher.into(
                        staged, binary, on_download and partial(on_download, item.field)
                    )
                if warnings:
                    origin = {**origin, "warnings": list(warnings)}
                return await staged.commit(**self._options(known, capability, origin))
        finally:
            await self._fetcher.release(binary)

    async def _masked(self, content: bytes) -> bytes:
        return (
            await in_thread(self._known.mask, content)
            if self._known and len(content) > _SMALL
            else self._known.mask(content)
        )

    def _options(self, binary: BinaryData, capability: str, origin: Mapping[str, object]) -> PutOptions:
        return {
            "size": binary.size,
            "mime_type": binary.mime_type,
            "filename": binary.filename and self._known.text(binary.filename),  # a download brings its own
            "namespace": capability,
            "meta": origin,
        }


def stored_as(ref: ArtifactRef, also: str = "") -> str:
    """Return the outcome of storing content, for a :class:`Step`."""
    return f"{also}stored as {ref.id}" if ref.stored else "not stored"


P = ParamSpec("P")
T = TypeVar("T")

#: Size in bytes of a small answer as JSON if the policy has no limit.
_SMALL = 64 * 1024


class Router:
    """Router of answers: stores every file of an answer and puts a reference in its place. It needs no session::

        routed = await Router(store, policy=TABLEAU).route(tool_result, capability="download_workbook")

    ``policy`` is the rules for files in answers (docs/requirements.md R2-4); the default is for apps that speak ABP.
    ``fetcher`` brings content that is not in the answer; the default downloads, but reaches no page. ``on_event`` gets
    :class:`~transports.ObservationClamped` when an agent's view of a result is cut, in the thread that reads it, and
    the events of the policy's transformer. ``durability`` is for answers without a file (as JSON); files are always
    synced to the disk.
    """

    @checked
    def __init__(
        self,
        store: ArtifactStore | HostStore | HostFacade,
        *,
        fetcher: Fetcher | None = None,
        policy: RoutingPolicy | None = None,
        on_event: OnRoutingEvent | None = None,
        durability: Durability = "process",
    ) -> None:
        found = discover_store(store)
        if found is None:
            raise UsageError(f"Router() takes a store, ours or a host's, not a {type(store).__name__}")
        self._store = store = found
        self._fetcher = fetcher or Fetcher(limit=store.max_bytes)
        self._policy = policy or ABP
        self._on_event = on_event
        self._layers = Layers(self._policy, self._fetcher)
        self._storing = Storing(store, self._fetcher, self._policy, durability)
        limits = (self._policy.max_inline_chars, self._policy.max_inline_bytes)
        self._small = min((limit for limit in limits if limit is not None), default=_SMALL)

    async def route(
        self,
        data: object,
        *,
        capability: str,
        outputs: Sequence[BinaryData] = (),
        source: Mapping[str, object] | None = None,
        warnings: Sequence[str] = (),
        effects: Sequence[Effect] = (),
        transport: str = "",
        started: float | None = None,
        schema: Mapping[str, object] | None = None,
        on_download: OnDownload | None = None,
        sender: Sender | None = None,
    ) -> Result:
        """Store the files of ``data``, any tree of JSON values and content, and return the routed answer.

        ``outputs`` are files that came beside the answer, ``effects`` the side effects of the call, ``source`` the
        origin that stored files record. ``started`` is the start of the work by :func:`time.perf_counter`, for
        ``duration_ms``. Differences from ``schema``, the capability's ``outputSchema``, become warnings.
        ``on_download`` gets the place, the bytes so far and the total of each download. Downloads are on behalf of
        ``sender``, the document that ``data`` came from, if it is known.

        Files are stored one after the other, in the order of the answer. If a file cannot be stored, the others are,
        and then the first :class:`~transports.errors.ABPError` is raised: its ``result`` has the stored parts, its
        ``details`` the field and the URL without credentials, ``download_url`` the whole URL. An error of a policy's
        transformer is raised unchanged. When the call is cancelled, content on the far side is released.
        """
        origin = {"capability": capability, **(source or {})}
        call = str(origin.get("call", ""))
        recognised = self._layers.plain(data)
        if recognised is None:
            context = TransformContext(capability, call, self._store, self._on_event)
            recognised = await self._layers.recognise(data, context)
        if not (recognised.found or recognised.refs or outputs):
            return await self._route_json(
                recognised, capability, call, origin, warnings, effects, transport, started, schema
            )
        data, found, steps = recognised.data, recognised.found, list(recognised.steps)
        large = recognised.large
        captured: list[Found] = []
        if outputs:
            captured = [Found(place, item) for place, item in zip(captured_places(data, found), outputs, strict=False)]
        notes = list(warnings)
        summaries: list[str] = []
        stored = {field_of(place): ref for place, ref in recognised.refs.items()}
        references = {place: ref.as_dict() for place, ref in recognised.refs.items()}
        steps += [
            Step("custom", place, f"{ref.mime_type}, stored already as {ref.id}") for place, ref in stored.items()
        ]
        texts: dict[Place, str] = {}
        failures: list[tuple[Found, ABPError]] = []
        waiting = deque((*found, *captured))
        try:
            while waiting:
                item = waiting.popleft()
                try:
                    ref = await self._storing.file(item, capability, origin, on_download, sender)
                except ABPError as error:
                    failures.append((item, error))
                    references[item.path] = {"error": error.as_dict()}
                    continue
                field = item.field
                stored[field] = ref
                references[item.path] = reference_for(ref, item)
                if warned := _strings(ref.source.get("warnings")):
                    notes += [f"{field or 'answer'}: {warning}" for warning in warned]
                if rule := recognised.configured.get(item.path):
                    summaries.append(rule.summary(ref))
                elif template := self._policy.default_summary_template:
                    summaries.append(fill_summary(template, ref, reference_metadata(item)))
                if not rule and (text := declared_text(item)) is not None:
                    texts[item.path] = cast(str, clamp(text, MAX_BYTES))
                layer = "fields" if rule else item.layer
                steps.append(Step(layer, field, f"{ref.mime_type}, {ref.size_bytes} bytes, {stored_as(ref)}"))
        finally:
            for item in waiting:  # cancelled: these will not be fetched
                await self._fetcher.release(item.binary)
        for item in captured:  # these have no place in the answer
            references.pop(item.path, None)
            texts.pop(item.path, None)
        routed = cast(JSONValue, await _look(large, replace, data, references))
        previews: dict[Place, JSONValue] = {}
        if not failures:
            encoded = await _look(large, _encoded, routed, capability)
            previews = await self._storing.json(
                routed, encoded, capability, origin, stored, steps, alone=False, large=large
            )
        # Added after json(), because text that is a file already needs no second file for its length.
        if texts:
            with_text = {place: {**references[place], "text": text} for place, text in texts.items()}
            routed = cast(JSONValue, await _look(large, replace, routed, with_text))
            previews |= self._storing.text_previews(texts, stored)
        if schema:
            notes += check_output(schema, routed, [*recognised.refs, *(item.path for item in found)])
        result = Result(
            capability,
            routed,
            stored,
            transport=transport,
            duration_ms=0.0 if started is None else (time.perf_counter() - started) * 1000,
            warnings=tuple(notes),
            effects=tuple(effects),
            metadata=await _look(large, metadata_of, data, found, recognised.refs)
            if stored.keys() - {""} or found or captured
            else {},
            steps=tuple(steps),
            summaries=tuple(summaries),
            previews=previews,
            limits=self._policy.agent,
            inline_fields=frozenset([*map(field_of, recognised.refs), *(item.field for item in found)]),
            call=call,
            on_clamped=self._on_event,
        )
        if not self._policy.inline_data:
            result = await _look(large, result.by_reference)
        if failures:
            raise self._failure(capability, failures, result, sender)
        return result

    async def _route_json(
        self,
        recognised: Recognised,
        capability: str,
        call: str,
        origin: Mapping[str, object],
        warnings: Sequence[str],
        effects: Sequence[Effect],
        transport: str,
        started: float | None,
        schema: Mapping[str, object] | None,
    ) -> Result:
        """Route an answer without files: the fast path, which most answers take."""
        routed, policy, steps = cast(JSONValue, recognised.data), self._policy, list(recognised.steps)
        large = recognised.large
        encoded = await in_thread(_encoded, routed, capability) if large else _encoded(routed, capability)
        stored: dict[str, ArtifactRef] = {}
        previews: dict[Place, JSONValue] = {}
        small = routed is not None and len(encoded) <= self._small
        nowhere = unkept(self._store, encoded, origin) if small else None
        if nowhere is None:
            previews = await self._storing.json(
                routed,
                encoded,
                capability,
                origin,
                stored,
                steps,
                alone=True,
                shorter_than=recognised.shorter_than,
                large=large,
            )
        result = Result(
            capability,
            routed,
            stored if nowhere is None else nowhere,
            transport,
            0.0 if started is None else (time.perf_counter() - started) * 1000,
            (*warnings, *check_output(schema, routed)) if schema else tuple(warnings),
            tuple(effects),
            metadata=metadata_of(routed, ()) if stored and stored.keys() != {""} else {},
            steps=tuple(steps),
            previews=previews,
            limits=policy.agent,
            call=call,
            on_clamped=self._on_event,
        )
        return result if policy.inline_data else await _look(large, result.by_reference)

    def _failure(
        self,
        capability: str,
        failures: Sequence[tuple[Found, ABPError]],
        result: Result,
        sender: Sender | None,
    ) -> ABPError:
        item, error = failures[0]
        if isinstance(error, BinaryError):  # others are about the store, or the way to the app
            error.located(f"{capability}: {item.field or 'the answer'}")
        error.details.setdefault("field", item.field)
        if isinstance(item.binary, BinaryData) and (url := self._fetcher.asked_by(sender).content_url(item.binary)):
            error.details.setdefault("url", redact_url(url))
            error.download_url = url
        if len(failures) > 1:
            error.details["also_failed"] = [other.field for other, _ in failures[1:]]
        error.result = result
        return error


async def _look(large: bool, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run ``work`` on a whole answer, in a thread if the answer is large."""
    return await in_thread(work, *args, **kwargs) if large else work(*args, **kwargs)


def _encoded(routed: object, capability: str) -> bytes:
    try:
        return encode_json(routed)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{capability}: the result holds a value that is not JSON: {error}") from error


def _strings(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list | tuple) else []


_HEAD = 4096  # bytes that signatures are looked for in
_BYTES_PER_TOKEN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLimits:
    """Limits for files that are given with a call; the defaults are those of docs/requirements.md R4-10.

    ``allowed_mime_types`` are patterns such as ``image/*``. ``large_file_tokens`` and ``max_auto_read_bytes`` are for
    readers: see :func:`large_file_warning` and :func:`auto_read_safe`.
    """

    max_file_bytes: int = 100 << 20
    allowed_mime_types: Sequence[str] = ("*/*",)
    large_file_tokens: int = 10_000
    max_auto_read_bytes: int = 1 << 20


class GivenFile(TypedDict, total=False):
    """File as JSON: its ``content``, or the ``id`` or ``uri`` of an artifact in the store.

    ``content`` is base64, or text if ``encoding`` is ``utf-8``. ``name`` is another word for ``filename``.
    """

    content: str
    encoding: str
    mimeType: str
    filename: str
    name: str
    id: str
    uri: str


@dataclass(frozen=True, slots=True)
class OpenFile:
    """File that is open for reading at its beginning; the caller closes it.

    So the checked file is the stored one, even if its path leads to another file meanwhile."""

    file: FileIO
    mime_type: str | None
    filename: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """File that was checked and stored.

    ``ref`` is its reference, ``binary`` the file as a parameter for :meth:`~transports.Session.call`: by path if the
    store has paths, so that no content is read yet.
    """

    ref: ArtifactRef
    binary: BinaryData


async def accept_files(
    files: Mapping[str, GivenFile | BinaryData | OpenFile | Path | bytes],
    *,
    store: ArtifactStore,
    limits: FileLimits | None = None,
    capability: str = "input",
) -> dict[str, Accepted]:
    """Check and store files that are given with a call; the keys name their places in the parameters.

    All files are checked before any is stored, and the store makes their names safe. The type of a file is that of its
    signature, else the declared type, else that of its extension.

    Raises :class:`~transports.errors.TooLarge`, :class:`~transports.errors.UsageError` for a type that is not allowed
    or a file that cannot be read, :class:`~transports.errors.BadEncoding`, :class:`~transports.errors.BadDescriptor`
    and :class:`~transports.errors.ArtifactNotFound`, each with the key as ``details["field"]``.
    """
    limits = limits or FileLimits()
    checked: dict[str, ArtifactRef | BinaryData | OpenFile] = {}
    for key, given in files.items():
        try:
            known = await _artifact(given, store)
            item = given if isinstance(given, OpenFile) else known or _binary(given)
            checked[key] = _check_open(item, limits) if isinstance(item, OpenFile) else _check(item, limits)
        except BadEncoding as error:
            raise _bad_argument(key, error) from error
        except ABPError as error:
            error.details.setdefault("field", key)
            raise
    accepted: dict[str, Accepted] = {}
    for key, item in checked.items():
        ref = item if isinstance(item, ArtifactRef) else await _stored(item, store, limits, capability)
        accepted[key] = Accepted(ref, await _parameter(ref, item, store))
    return accepted


async def _artifact(given: object, store: ArtifactStore) -> ArtifactRef | None:
    if not isinstance(given, Mapping) or given.get("content") is not None:
        return None
    identity = given.get("id") or given.get("uri")
    if not isinstance(identity, str):
        raise BadDescriptor("a file needs its content (base64), or the id of an artifact")
    return await store.stat(identity.removeprefix("artifact://"))


def _binary(given: object) -> BinaryData:
    match given:
        case BinaryData():
            return given
        case bytes() | bytearray() | memoryview():
            return BinaryData.from_bytes(given)
        case Path():
            return BinaryData.from_path(given)
        case Mapping():
            return _described(given)
        case _:
            raise UsageError(f"a file cannot be given as {type(given).__name__}; use a path, bytes or an object")


def _described(given: Mapping[str, object]) -> BinaryData:
    content, encoding = given.get("content"), given.get("encoding", "base64")
    if not isinstance(content, str) or encoding not in ("base64", "utf-8"):
        raise BadDescriptor("a file's content must be text, and its encoding base64 or utf-8")
    encoded = Encoded(content, "base64" if encoding == "base64" else "utf-8")
    return BinaryData(encoded, _text(given, "mimeType"), None, _text(given, "filename") or _text(given, "name"))


def _bad_argument(key: str, error: BadEncoding) -> BadEncoding:
    """Return the error of a file's content for its sender: the decoder's message is about an app, which had no part."""
    reason = error.message.partition("; the app")[0]
    return BadEncoding(
        f"{key}: content: {reason}; send the file's bytes as standard, padded base64 (RFC 4648), without line breaks "
        "and without data:…;base64, before it",
        details={"field": key},
    )


def _text(given: Mapping[str, object], key: str) -> str | None:
    value = given.get(key)
    if value is not None and not isinstance(value, str):
        raise BadDescriptor(f"a file's {key} must be text")
    return value


def _check(item: ArtifactRef | BinaryData, limits: FileLimits) -> ArtifactRef | BinaryData:
    """Return the same file with its size and type known, and encoded content decoded."""
    if isinstance(item, ArtifactRef):
        _check_allowed(item.size_bytes, item.mime_type, limits)
        return item
    if isinstance(item.content, Encoded):
        _check_allowed(len(item.content.text) * 3 // 4 - 2 if item.content.encoding == "base64" else 0, None, limits)
        data = b"".join(item.chunks())
        item = BinaryData(data, item.mime_type, item.size, item.filename, item.extra)
    if isinstance(item.content, bytes):
        size, head = len(item.content), item.content[:_HEAD]
    elif isinstance(item.content, LocalFile):
        fresh = BinaryData.from_path(item.content.path)
        size = fresh.size or 0
        with item.content.path.open("rb") as file:
            head = file.read(_HEAD)
    else:
        raise UsageError("a file given with a call must be here already: a path, bytes or base64")
    mime_type = _type(head, item)
    _check_allowed(size, mime_type, limits)
    return BinaryData(item.content, mime_type, size, item.filename, item.extra)


def _check_open(item: OpenFile, limits: FileLimits) -> OpenFile:
    """Return the same file with its type known."""
    fd = item.file.fileno()
    try:
        size, head = os.fstat(fd).st_size, read_at(fd, _HEAD, 0)
    except OSError as error:
        raise UsageError(f"cannot read {item.filename!r}: {error.strerror}") from error
    mime_type = _type(head, item)
    _check_allowed(size, mime_type, limits)
    return OpenFile(item.file, mime_type, item.filename)


def _type(head: bytes, item: BinaryData | OpenFile) -> str:
    declared = normalise_mime(item.mime_type) or normalise_mime(mimetypes.guess_type(item.filename or "")[0])
    signed = sniff(head)
    if signed and (declared in (None, OCTET_STREAM) or contradicts(declared or "", signed)):
        return signed
    return declared or OCTET_STREAM


def _check_allowed(size: int, mime_type: str | None, limits: FileLimits) -> None:
    if size > limits.max_file_bytes:
        raise TooLarge(
            f"the file has {size:,} bytes; at most {limits.max_file_bytes:,} are accepted with a call",
            details={"limit": limits.max_file_bytes, "size": size},
        )
    allowed = limits.allowed_mime_types
    if mime_type is not None and not any(fnmatchcase(mime_type, pattern.lower()) for pattern in allowed):
        raise UsageError(
            f"files of type {mime_type} are not accepted; give one of {', '.join(allowed)}",
            details={"mime_type": mime_type, "allowed": list(allowed)},
        )


async def _stored(
    binary: BinaryData | OpenFile, store: ArtifactStore, limits: FileLimits, capability: str
) -> ArtifactRef:
    options: PutOptions = {
        "mime_type": binary.mime_type,
        "filename": binary.filename,
        "namespace": capability,
        "meta": {"input_of": capability},
    }
    if isinstance(binary, OpenFile):
        return await store.put_stream(_limited(binary.file, limits), **options)
    if isinstance(binary.content, LocalFile):
        options["size"] = binary.size
        options["filename"] = binary.filename or binary.content.path.name
        return await store.put_file(binary.content.path, **options)
    return await store.put_bytes(binary.read(), **options)


async def _limited(file: FileIO, limits: FileLimits) -> AsyncGenerator[bytes, None]:
    """Yield the content of an open file, which may have grown since it was checked."""
    size = 0
    async for piece in pieces_of(file):
        size += len(piece)
        _check_allowed(size, None, limits)
        yield piece


async def _parameter(ref: ArtifactRef, item: ArtifactRef | BinaryData | OpenFile, store: ArtifactStore) -> BinaryData:
    """Return the stored file as a parameter: by path if there is one, else the content in memory or from the store."""
    content = item.content if isinstance(item, BinaryData) else None
    if ref.path is not None:
        content = LocalFile(ref.path)
    elif content is None:
        content = await store.get(ref)
    return BinaryData(content, ref.mime_type, ref.size_bytes, ref.filename)


# --- before a file is read (docs/requirements.md R4-6) ----------------------------------------------------------------


def estimated_tokens(ref: ArtifactRef) -> int:
    """Return the estimated number of tokens of the content: one for every four bytes."""
    return -(-ref.size_bytes // _BYTES_PER_TOKEN)


def large_file_warning(ref: ArtifactRef, limits: FileLimits | None = None) -> bool:
    """Return whether a file is too large for a model's context: more than ``large_file_tokens``."""
    return estimated_tokens(ref) > (limits or FileLimits()).large_file_tokens


def auto_read_safe(ref: ArtifactRef, limits: FileLimits | None = None) -> bool:
    """Return whether a program may read a file into a model without asking.

    That is text of at most ``max_auto_read_bytes``, without a :func:`large_file_warning`."""
    limits = limits or FileLimits()
    small = ref.size_bytes <= limits.max_auto_read_bytes and not large_file_warning(ref, limits)
    return small and is_textual(ref.mime_type)


def is_textual(mime_type: str) -> bool:
    """Return whether content of a type is text for people: ``text/*``, JSON, XML and JavaScript."""
    return not is_binary_mime(mime_type) or mime_type.endswith(("+xml", "+json", "/xml", "/javascript"))
