"""The router: it stores the files of an answer that :mod:`._layers` finds, and puts references in their places."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar, Unpack, cast

from .._internal.arguments import require_plain_function, validate_arguments
from .._internal.masking import MAX_MASKED_BYTES, KnownSecrets, known_to
from .._internal.tasks import in_thread
from .._internal.telemetry import span
from ..artifacts._base import ArtifactStore, Staged
from ..artifacts._content import Durability, PutOptions
from ..artifacts._files import map_os_errors
from ..artifacts._hosts import FromHost
from ..artifacts._memory import NoneStore
from ..artifacts._opening import discover_store
from ..artifacts._ref import ArtifactRef
from ..errors import ABPError, BinaryError, UsageError
from ..protocol._find_content import DESCRIPTOR_KEYS, Found, Place, field_of, replace_values
from ..protocol._plain_text import redact_url
from ..protocol._strict_json import JSONValue, encode_json
from ..protocol.binary import BinaryData, Encoded
from ..protocol.messages import Effect, Sender
from ..protocol.schema import check_output
from ._guard import MAX_BYTES, clamp
from ._layers import Fetcher, FieldMatch, Layers, OnDownload, Recognised, fill_summary
from ._policy import ABP, OnRoutingEvent, RoutingPolicy, Step, TransformContext
from ._result import Result, is_long, long_texts, preview, shorten

P = ParamSpec("P")
T = TypeVar("T")


def reference_for(ref: ArtifactRef, file: Found) -> dict[str, object]:
    reference = ref.as_dict()
    metadata = reference_metadata(file)
    if metadata:
        reference["metadata"] = dict(metadata)
    return reference


def reference_metadata(file: Found) -> Mapping[str, object]:
    if isinstance(file.binary, BinaryData):
        return file.binary.extra
    return {}


def declared_text(file: Found) -> str | None:
    """Return the text of a descriptor whose content is UTF-8 text, or ``None`` (docs/protocol.md 9.3)."""
    if file.layer != "abp" or not isinstance(file.binary, BinaryData):
        return None
    content = file.binary.content
    if isinstance(content, Encoded) and content.encoding == "utf-8":
        return str(content.text)
    return None


def metadata_of(data: object, files: Sequence[Found], refs: Collection[Place] = ()) -> Mapping[str, object]:
    """Return the fields of an answer that hold no file (docs/protocol.md 12.2). ``refs`` are the places of references
    that the answer itself held."""
    if () in refs:
        return {}
    if files and files[0].path == ():
        return reference_metadata(files[0])
    if not isinstance(data, dict):
        return {}

    used_keys = {item.path[0] for item in files} | {place[0] for place in refs}
    is_descriptor = any(item.is_flat and len(item.path) == 1 for item in files)
    if is_descriptor:
        used_keys |= DESCRIPTOR_KEYS
    return {key: value for key, value in data.items() if str(key) not in used_keys}


def captured_files(outputs: Sequence[BinaryData], data: object, files: Sequence[Found]) -> list[Found]:
    """Give places to the files that the app produced beside its answer (docs/protocol.md 12.6): ``captured.0``,
    ``captured.1`` and so on, except for places that ``files`` have. The first is ``document`` if the answer has no file
    and no field ``document``."""
    used_places = {item.path for item in files}
    # Enough numbers even if each file in the answer has one.
    numbered: list[Place] = [("captured", number) for number in range(len(outputs) + len(files))]
    places = [place for place in numbered if place not in used_places]
    has_document_field = isinstance(data, dict) and "document" in data
    if not files and not has_document_field:
        places[0] = ("document",)
    return [Found(place, output) for place, output in zip(places, outputs, strict=False)]


class Unkept(Mapping[str, ArtifactRef]):
    """Artifacts of a JSON answer that a ``none:`` store does not keep: a reference under ``""``, made when it is read.
    Hashing and naming it for every answer would make a small call over a WebSocket take 1.4 times as long."""

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


def unkept_if_allowed(store: ArtifactStore, data: bytes, origin: Mapping[str, object]) -> Unkept | None:
    """Return the artifacts of an answer that the store does not keep, or ``None`` if the store must see the JSON now,
    to keep it, to audit it, or to check its size or ``origin``."""
    if not isinstance(store, NoneStore) or store.audit or len(data) > min(store.max_bytes, _SMALL):
        return None
    for value in origin.values():
        if type(value) is not str:
            # The store must check other values now, not when the reference is read.
            return None
    store.warn_once()
    return Unkept(store, data, origin)


def masked(staged: Staged, secrets: KnownSecrets) -> Staged:
    if secrets:
        return _MaskedStaged(staged, secrets)
    return staged


class _MaskedStaged(Staged):
    """A staged file whose secrets are masked. Written content is held in memory until the commit masks it; content
    above ``MAX_MASKED_BYTES`` is passed on unmasked."""

    def __init__(self, staged: Staged, secrets: KnownSecrets) -> None:
        self._secrets = secrets
        self._staged = staged
        #: Content that is not written yet; ``None`` once it has been passed on.
        self._held: bytearray | None = bytearray()

    @property
    def path(self) -> Path:
        return self._staged.path

    @property
    def size(self) -> int:
        return self._staged.size + len(self._held or b"")

    async def write(self, chunk: bytes | memoryview) -> None:
        if self._held is None:
            await self._staged.write(chunk)
            return
        self._held += chunk
        if len(self._held) > MAX_MASKED_BYTES:
            content = bytes(self._held)
            self._held = None
            await self._staged.write(content)

    async def reset(self) -> None:
        self._held = bytearray()
        await self._staged.reset()

    def follow(self) -> None:
        """Follow the staged file, which must be large: content of this size is not masked."""
        self._staged.follow()

    async def commit(self, **options: Unpack[PutOptions]) -> ArtifactRef:
        if self._held:
            content = bytes(self._held)
            self._held = None
            await self._staged.write(await in_thread(self._secrets.mask_file, content))
        elif self._held is not None:
            # Nothing was written here, so the transport may have written the file itself.
            with map_os_errors("mask a file", self.path.parent):
                await in_thread(_mask_file, self.path, self._secrets)
        return await self._staged.commit(**options)


def _mask_file(path: Path, secrets: KnownSecrets) -> None:
    """Mask the secrets in a file, which keeps its size."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_MASKED_BYTES:
        return
    content = path.read_bytes()
    masked_content = secrets.mask_file(content)
    if masked_content != content:
        with path.open("r+b") as file:
            file.write(masked_content)


#: Size in bytes of content that is decoded in the event loop.
_SMALL = 64 * 1024


@dataclass(slots=True)
class _Answer:
    """An answer in work. ``origin`` is the ``source`` of the files. Downloads are on behalf of ``sender``, with their
    progress to ``on_download``."""

    capability: str
    origin: Mapping[str, object]
    recognised: Recognised
    sender: Sender | None
    on_download: OnDownload | None
    warnings: list[str]
    steps: list[Step]
    #: Files that came beside the answer. Their places are names only: the data gets no reference there.
    captured: Sequence[Found] = ()
    #: References of stored files, by field.
    stored: dict[str, ArtifactRef] = field(default_factory=dict)
    #: References, or errors, by the place of the file in the answer.
    references: dict[Place, dict[str, object]] = field(default_factory=dict)
    #: Texts that stand beside their references.
    texts: dict[Place, str] = field(default_factory=dict)
    summaries: list[str] = field(default_factory=list)
    failures: list[tuple[Found, ABPError]] = field(default_factory=list)
    #: In the place of ``stored``, if the store keeps nothing.
    unkept: Unkept | None = None

    async def in_thread_if_large(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self.recognised.large:
            return await in_thread(work, *args, **kwargs)
        return work(*args, **kwargs)

    def add_reference(self, place: Place, ref: ArtifactRef) -> None:
        """Add a file that the app stored itself."""
        self.stored[field_of(place)] = ref
        self.references[place] = ref.as_dict()
        self.steps.append(Step("custom", field_of(place), f"{ref.mime_type}, stored already as {ref.id}"))

    def add_file(self, file: Found, ref: ArtifactRef, match: FieldMatch | None, template: str | None) -> None:
        """Add a file that was stored: its reference, its line of the summary, its text and its step."""
        self.stored[file.field] = ref
        self.references[file.path] = reference_for(ref, file)
        for warning in _strings(ref.source.get("warnings")):
            self.warnings.append(f"{file.field or 'answer'}: {warning}")

        if match is not None:
            self.summaries.append(match.summary(ref))
        else:
            if template:
                self.summaries.append(fill_summary(template, ref, reference_metadata(file)))
            text = declared_text(file)
            if text is not None:
                self.texts[file.path] = cast(str, clamp(text, MAX_BYTES))

        layer = file.layer if match is None else "fields"
        self.steps.append(Step(layer, file.field, f"{ref.mime_type}, {ref.size_bytes} bytes, {_stored_as(ref)}"))

    def add_failure(self, file: Found, error: ABPError) -> None:
        self.failures.append((file, error))
        self.references[file.path] = {"error": error.as_dict()}


class Router:
    """Router of answers: stores every file of an answer and puts a reference in its place. It needs no session::

        routed = await Router(store, policy=TABLEAU).route(tool_result, capability="download_workbook")

    ``policy`` is the rules for files in answers (docs/requirements.md R2-4); the default is for apps that speak ABP.
    ``fetcher`` brings content that is not in the answer; the default downloads, but reaches no page. ``on_event`` gets
    :class:`~transports.ObservationClamped` when an agent's view of a result is cut, in the thread that reads it, and
    the events of the policy's transformer. ``durability`` is for answers without a file (as JSON); files are always
    synced to the disk.
    """

    @validate_arguments
    def __init__(
        self,
        store: ArtifactStore | FromHost,
        *,
        fetcher: Fetcher | None = None,
        policy: RoutingPolicy | None = None,
        on_event: OnRoutingEvent | None = None,
        durability: Durability = "process",
    ) -> None:
        discovered_store = discover_store(store)
        if discovered_store is None:
            raise UsageError(f"Router() takes a store, ours or a host's, not a {type(store).__name__}")
        require_plain_function("on_event", on_event)

        self._store = discovered_store
        self._secrets = known_to(discovered_store.scope.holder)
        self._fetcher = fetcher or Fetcher(limit=discovered_store.max_bytes)
        self._policy = policy or ABP
        self._on_event = on_event
        self._durability = durability
        self._layers = Layers(self._policy, self._fetcher)

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
        transformer is raised unchanged. When the call is cancelled, content on the far side is released."""
        origin = {"capability": capability, **(source or {})}
        call = str(origin.get("call", ""))
        context = TransformContext(capability, call, self._store, self._on_event)
        recognised = await self._layers.recognise(data, context)
        all_warnings = [*warnings, *recognised.warnings]
        answer = _Answer(capability, origin, recognised, sender, on_download, all_warnings, list(recognised.steps))
        if outputs:
            answer.captured = captured_files(outputs, recognised.data, recognised.files)
        for place, ref in recognised.refs.items():
            answer.add_reference(place, ref)

        if recognised.files or answer.captured:
            await self._store_files(answer)
        routed, previews = await self._store_data(answer)
        file_places = [*recognised.refs, *(file.path for file in recognised.files)]
        if schema:
            answer.warnings += check_output(schema, routed, file_places)

        metadata: Mapping[str, object] = {}
        is_only_json = answer.stored.keys() <= {""} and not (file_places or answer.captured)
        if not is_only_json:
            metadata = await answer.in_thread_if_large(metadata_of, recognised.data, recognised.files, recognised.refs)
        duration_ms = 0.0
        if started is not None:
            duration_ms = (time.perf_counter() - started) * 1000

        result = Result(
            capability,
            routed,
            answer.stored if answer.unkept is None else answer.unkept,
            transport=transport,
            duration_ms=duration_ms,
            warnings=tuple(answer.warnings),
            effects=tuple(effects),
            metadata=metadata,
            steps=tuple(answer.steps),
            summaries=tuple(answer.summaries),
            previews=previews,
            limits=self._policy.agent,
            inline_fields=frozenset(map(field_of, file_places)),
            call=call,
            on_clamped=self._on_event,
        )
        if not self._policy.inline_data:
            result = await answer.in_thread_if_large(result.by_reference)
        if answer.failures:
            raise self._first_failure(answer, result)
        return result

    async def _store_files(self, answer: _Answer) -> None:
        """Store all files. A file that cannot be stored does not stop the others."""
        matches = answer.recognised.configured
        waiting = deque((*answer.recognised.files, *answer.captured))
        try:
            while waiting:
                file = waiting.popleft()
                try:
                    ref = await self._store_file(file, answer)
                except ABPError as error:
                    answer.add_failure(file, error)
                else:
                    answer.add_file(file, ref, matches.get(file.path), self._policy.default_summary_template)
        finally:
            # After a cancellation, the remaining files will not be fetched.
            for file in waiting:
                await self._fetcher.release(file.binary)

        for file in answer.captured:
            answer.references.pop(file.path, None)
            answer.texts.pop(file.path, None)

    async def _store_file(self, file: Found, answer: _Answer) -> ArtifactRef:
        """Store one file. The error of a file that could not be read is raised here."""
        binary = file.binary
        if isinstance(binary, ABPError):
            raise binary
        content = binary.content
        if isinstance(content, Encoded) and len(content.text) <= _SMALL:
            content = b"".join(content.chunks())
        if isinstance(content, bytes):
            if self._secrets:
                content = await in_thread(self._secrets.mask_file, content)
            return await self._store.put_bytes(content, **self._put_options(binary, answer))
        try:
            return await self._fetch_file(binary, file.field, answer)
        finally:
            await self._fetcher.release(binary)

    async def _fetch_file(self, binary: BinaryData, field: str, answer: _Answer) -> ArtifactRef:
        """Store content that arrives in pieces: a download, a handle, a long text."""
        on_download = None
        if answer.on_download is not None:
            on_download = partial(answer.on_download, field)
        async with self._store.stage() as stage:
            staged = masked(stage, self._secrets)
            with span("abp.transfer", {}):
                fetcher = self._fetcher.asked_by(answer.sender)
                description, warnings = await fetcher.into(staged, binary, on_download)
            return await staged.commit(**self._put_options(description, answer, warnings))

    def _put_options(self, binary: BinaryData, answer: _Answer, warnings: Sequence[str] = ()) -> PutOptions:
        origin = answer.origin
        if warnings:
            origin = {**origin, "warnings": list(warnings)}
        return {
            "size": binary.size,
            "mime_type": binary.mime_type,
            # The name may be that of a download, in which nothing is masked yet.
            "filename": binary.filename and self._secrets.mask_text(binary.filename),
            "namespace": answer.capability,
            "meta": origin,
        }

    async def _store_data(self, answer: _Answer) -> tuple[JSONValue, dict[Place, JSONValue]]:
        """Return the data with references in the places of files, and the previews that agents see in the place of long
        texts. An answer without data is not stored, nor one with a file that could not be stored."""
        routed = cast(
            JSONValue, await answer.in_thread_if_large(replace_values, answer.recognised.data, answer.references)
        )
        previews: dict[Place, JSONValue] = {}
        if routed is not None and not answer.failures:
            json_bytes = await answer.in_thread_if_large(_encode_answer, routed, answer.capability)
            previews = await self._store_json(routed, json_bytes, answer)

        # Add these texts after the JSON was stored: they are files already, and must not get another for their length.
        if answer.texts:
            with_text = {place: {**answer.references[place], "text": text} for place, text in answer.texts.items()}
            routed = cast(JSONValue, await answer.in_thread_if_large(replace_values, routed, with_text))
            previews |= self._text_previews(answer)
        return routed, previews

    async def _store_json(self, routed: JSONValue, encoded: bytes, answer: _Answer) -> dict[Place, JSONValue]:
        """Store the answer as JSON, unless its files are enough, and its long texts. Return the texts' previews."""
        policy = self._policy
        has_files = bool(answer.stored)
        # JSON has at least as many bytes as its texts have characters.
        may_have_long_text = policy.max_inline_chars is not None and len(encoded) > policy.max_inline_chars
        is_large = policy.max_inline_bytes is not None and len(encoded) > policy.max_inline_bytes
        is_only_small_data = not (has_files or may_have_long_text or is_large)
        if is_only_small_data:
            answer.unkept = unkept_if_allowed(self._store, encoded, answer.origin)
            if answer.unkept is not None:
                return {}

        durability: Durability = "disk" if has_files else self._durability
        previews: dict[Place, JSONValue] = {}
        if may_have_long_text:
            previews = await self._store_long_texts(routed, answer, durability)

        is_needed_beside_files = is_large and "" not in answer.stored
        if not has_files or is_needed_beside_files:
            ref = await self._store.put_bytes(
                encoded,
                mime_type="application/json",
                namespace=answer.capability,
                meta=answer.origin,
                durability=durability,
            )
            answer.stored[""] = ref
            if is_large:
                answer.steps.append(Step("size", "", f"{len(encoded):,} bytes of JSON, {_stored_as(ref, 'also ')}"))

        # An answer that is itself one long text has no other file than its JSON.
        if isinstance(routed, str) and is_long(routed, policy.max_inline_chars) and "" in answer.stored:
            previews[()] = preview(routed, answer.stored[""])
        return previews

    async def _store_long_texts(
        self, routed: JSONValue, answer: _Answer, durability: Durability
    ) -> dict[Place, JSONValue]:
        """Store the longest texts as files, and return their previews."""
        limit = self._policy.max_inline_chars
        assert limit is not None
        texts = await answer.in_thread_if_large(long_texts, routed, limit)
        texts = [text for text in texts if field_of(text.place) not in answer.stored]
        texts.sort(key=lambda text: len(text.text), reverse=True)

        previews: dict[Place, JSONValue] = {}
        for place, text, mime_type in texts[: self._policy.max_texts]:
            ref = await self._store.put_text(
                text, mime_type=mime_type, namespace=answer.capability, meta=answer.origin, durability=durability
            )
            answer.stored[field_of(place)] = ref
            previews[place] = preview(text, ref)
            step = f"{len(text):,} characters, {_stored_as(ref, 'also ')}"
            answer.steps.append(Step("size", field_of(place), step))
        return previews

    def _text_previews(self, answer: _Answer) -> dict[Place, JSONValue]:
        limit = self._policy.max_inline_chars
        return {
            (*place, "text"): shorten(text, stored=answer.stored[field_of(place)].stored)
            for place, text in answer.texts.items()
            if is_long(text, limit)
        }

    def _first_failure(self, answer: _Answer, result: Result) -> ABPError:
        """Return the error of the first file that was not stored, with its place, its URL and what was stored."""
        file, error = answer.failures[0]
        if isinstance(error, BinaryError):
            # Other errors are about the store, or the way to the app.
            error.located(f"{answer.capability}: {file.field or 'the answer'}")
        error.details.setdefault("field", file.field)

        if isinstance(file.binary, BinaryData):
            url = self._fetcher.asked_by(answer.sender).content_url(file.binary)
            if url:
                error.details.setdefault("url", redact_url(url))
                error.download_url = url

        if len(answer.failures) > 1:
            error.details["also_failed"] = [other.field for other, _ in answer.failures[1:]]
        error.result = result
        return error


def _encode_answer(routed: object, capability: str) -> bytes:
    try:
        return encode_json(routed)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{capability}: the result holds a value that is not JSON: {error}") from error


def _stored_as(ref: ArtifactRef, also: str = "") -> str:
    if ref.stored:
        return f"{also}stored as {ref.id}"
    return "not stored"


def _strings(value: object) -> list[str]:
    if isinstance(value, list | tuple):
        return [str(item) for item in value]
    return []
