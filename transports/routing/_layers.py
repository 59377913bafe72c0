"""Layers of the routing: the search for files in an answer (docs/requirements.md R2-4.1), before they are stored."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace as replace_fields
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple, Self, TypeAlias, TypeVar
from urllib.parse import urljoin

from .._internal.tasks import in_thread
from ..artifacts._base import Staged
from ..artifacts._files import map_os_errors
from ..artifacts._ref import ArtifactRef
from ..base import Transport
from ..errors import ABPError, ProtocolError, TooLarge, TransportError
from ..protocol._find_content import Found, Place, field_of, find, find_values, replace_values
from ..protocol._heuristics import Heuristics
from ..protocol._media import OCTET_STREAM, extension_for
from ..protocol._strict_json import decode_json, is_larger
from ..protocol.binary import BinaryData, Download, Encoded, Handle, sniff_base64, verify_size
from ..protocol.messages import Sender
from ._policy import FieldRule, RoutingPolicy, Step, TransformContext, Transformer, walk_path

#: The head of a data URL, which some servers put before base64.
_DATA_URL = re.compile(r"data:[^,]{0,200};base64,", re.IGNORECASE)
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class FieldMatch:
    """A file in a field that a rule names. ``siblings`` are the fields beside it."""

    place: Place
    binary: BinaryData
    rule: FieldRule
    siblings: Mapping[str, object]

    def summary(self, ref: ArtifactRef) -> str:
        return fill_summary(self.rule.summary, ref, self.siblings, self.rule.content_type)


def fill_summary(
    template: str, ref: ArtifactRef, siblings: Mapping[str, object], content_type: str | None = None
) -> str:
    """Return the line of a summary for a file, by its template. A file that was not stored is marked as such."""
    if not content_type:
        content_type = extension_for(ref.mime_type).removeprefix(".")
        if ref.mime_type == OCTET_STREAM:
            content_type = "binary"

    values = {
        "content_type": content_type,
        "mime_type": ref.mime_type,
        "size": str(ref.size_bytes),
        "size_human": human_size(ref.size_bytes),
        "artifact_id": ref.id,
        "filename": ref.filename,
    }
    text = _fill_template(template, siblings, values)
    if ref.stored:
        return text
    return f"{text.rstrip('.')}. Note: Binary content not stored."


def match_fields(data: object, rules: Sequence[FieldRule], roots: Sequence[Place] = ((),)) -> list[FieldMatch]:
    """Find the fields that rules name. The path of each rule begins at each of ``roots``. If several rules name a
    field, the first rule counts."""
    matches: dict[Place, FieldMatch] = {}
    for root, rule in product(roots, rules):
        for place, node, siblings in walk_path(data, rule.path, root):
            if isinstance(node, str) and node and place not in matches:
                binary = _field_content(node, rule, siblings)
                if binary is not None:
                    matches[place] = FieldMatch(place, binary, rule, siblings)
    return list(matches.values())


def human_size(size: int) -> str:
    """Return a size in bytes for people: ``531 bytes``, ``488.3 KB``, ``2.3 MB``. A KB has 1,024 bytes."""
    if size < 1024:
        return f"{size} bytes"
    value = float(size)
    for unit in ("KB", "MB"):
        value /= 1024
        if value < 1024:
            return f"{value:.1f} {unit}"
    return f"{value / 1024:.1f} GB"


def _field_content(text: str, rule: FieldRule, siblings: Mapping[str, object]) -> BinaryData | None:
    """Return the file in a field, or ``None`` if the rule does not fit the field's format, encoding or text."""
    if not _fits_formats(siblings.get("format"), rule.formats):
        return None

    declared_encoding = siblings.get("encoding")
    # Text that begins with "<" is XML or HTML.
    if declared_encoding is None and rule.encoding == "base64" and text.lstrip().startswith("<"):
        return None

    encoding = declared_encoding.lower() if isinstance(declared_encoding, str) else rule.encoding
    if encoding == "utf-8":
        encoded = Encoded(text, "utf-8")
    elif encoding == "base64":
        bare = _bare_base64(text)
        # A short text without the signature of a file is a word, such as ``pending``.
        is_short = len(bare) < 100
        if is_short and rule.declared_type is not None and sniff_base64(bare) is None:
            return None
        encoded = Encoded(bare, "base64")
    else:
        # GitHub says "none" where it leaves the content out.
        return None

    filename = _fill_template(rule.filename, siblings, {}) if rule.filename else None
    return BinaryData(encoded, rule.declared_type, None, filename)


def _fits_formats(file_format: object, formats: Sequence[str]) -> bool:
    """Return whether the value of a field ``format`` is among the ``formats`` of a rule, or either is missing."""
    if not formats or not isinstance(file_format, str) or not file_format:
        return True
    return file_format.lower() in map(str.lower, formats)


def _bare_base64(text: str) -> str:
    head = _DATA_URL.match(text)
    if head is not None:
        text = text[head.end() :]
    return text.replace("\r", "").replace("\n", "")


def _fill_template(template: str, siblings: Mapping[str, object], values: Mapping[str, str]) -> str:
    """Replace each ``{name}`` by its value in ``values`` or ``siblings``, or else by ``unknown name``. This is done
    once: a value of the app is never parsed as a template."""

    def value_of(placeholder: re.Match[str]) -> str:
        name = placeholder[1]
        if name in values:
            return values[name]
        sibling = siblings.get(name)
        if isinstance(sibling, bool) or not isinstance(sibling, str | int | float):
            return f"unknown {name}"

        max_chars = 200
        # Split no more of the text than is needed, even if much of it is white space.
        text = " ".join(str(sibling)[: 4 * max_chars].split())
        if len(text) > max_chars:
            text = text[: max_chars - 1] + "…"
        return text

    return _PLACEHOLDER.sub(value_of, template)


#: Keys of the top of an answer below which texts may be JSON.
_TEXT_KEYS = frozenset(("content", "result", "structuredContent"))


class ParsedTexts(NamedTuple):
    """An answer whose texts of JSON are parsed. ``roots`` are the places where the paths of field rules begin."""

    data: object
    roots: Sequence[Place]
    steps: Sequence[Step]


def parse_text_blocks(
    data: Mapping[str, object], rules: Sequence[FieldRule], heuristics: Heuristics | None
) -> ParsedTexts:
    """Parse the JSON in texts of an answer, where servers (docs/requirements.md R2-3.3) and SDKs
    (``{"result": text}``) put results. A text is replaced by its tree only if that holds a file; then a copy of
    ``data`` is returned. Field rules begin at the top, at ``structuredContent`` and at each such tree."""
    roots: list[Place] = [()]
    steps: list[Step] = []
    trees: dict[Place, object] = {}
    for kind, place, value in _text_blocks(data):
        match kind:
            case "structured":
                roots.append(place)
            case "resource_link":
                steps.append(Step("typed", field_of(place), "kept as a link; resources/read fetches it"))
            case "text":
                tree = _parse_tree_with_file(value, rules, heuristics)
                if tree is not None:
                    trees[place] = tree
                    roots.append(place)
                    steps.append(Step("typed", field_of(place), "JSON in the text, read as such"))
    return ParsedTexts(replace_values(data, trees), roots, steps)


def _text_blocks(data: Mapping[str, object]) -> Iterator[tuple[str, Place, object]]:
    """Yield the kind, the place and the value of each text and link of an answer, and of its structured content."""
    structured = data.get("structuredContent")
    # SDKs wrap the text of a tool as {"result": text}.
    if data.keys() == {"result"}:
        yield "text", ("result",), data["result"]
    if isinstance(structured, dict) and structured.keys() == {"result"}:
        yield "text", ("structuredContent", "result"), structured["result"]

    blocks = data.get("content")
    if not isinstance(blocks, list):
        return
    if isinstance(structured, dict):
        yield "structured", ("structuredContent",), structured
    for index, block in enumerate(blocks):
        if isinstance(block, dict) and block.get("type") == "text":
            yield "text", ("content", index, "text"), block.get("text")
        elif isinstance(block, dict) and block.get("type") == "resource_link":
            yield "resource_link", ("content", index), block


def _parse_tree_with_file(text: object, rules: Sequence[FieldRule], heuristics: Heuristics | None) -> object:
    """Return the list or object in a text of JSON, or ``None`` if the text is something else or holds no file."""
    if not isinstance(text, str) or text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        tree = decode_json(text)
        holds_file = match_fields(tree, rules) or find(tree, heuristics=heuristics)
    except ProtocolError:
        return None
    return tree if holds_file else None


#: Callback for the progress of a download: the place of the file, its bytes so far, and the expected total (``None`` if
#: it is unknown). A restarted download counts from zero again.
OnDownload: TypeAlias = Callable[[str, int, int | None], None]


@dataclass(frozen=True, slots=True)
class Fetcher:
    """Writer of the content of a :class:`~transports.BinaryData` into a staged file.

    ``transport`` is needed for content that stayed on the far side and for ``blob:`` URLs; downloads get its cookies.
    ``timeout`` is in seconds, for each file. ``limit`` is the largest file in bytes. ``allow_private`` admits downloads
    from private addresses other than the one at which the app was reached. With ``propagate``, downloads from the app's
    own origin carry ``traceparent``. ``sender`` is the document that the content belongs to, by default the app. With
    ``accept_compression``, servers may compress downloads, which are decoded while they arrive."""

    transport: Transport | None = None
    timeout: float = 300.0
    limit: int = 1 << 30
    allow_private: bool = False
    propagate: bool = False
    sender: Sender | None = None
    accept_compression: bool = False

    def asked_by(self, sender: Sender | None) -> Self:
        """Return this fetcher for content of the document ``sender``, on whose behalf it downloads."""
        if sender is None:
            return self
        return replace_fields(self, sender=sender)

    async def into(
        self,
        staged: Staged,
        binary: BinaryData,
        on_download: Callable[[int, int | None], None] | None = None,
    ) -> tuple[BinaryData, Sequence[str]]:
        """Write the content into ``staged``. Return its description, and warnings about it.

        The headers of a download may add a type or a name to the description.

        ``on_download`` gets the bytes so far and the expected total of a download. Raises
        :class:`~transports.errors.BinaryError` for content that cannot be trusted,
        :class:`~transports.errors.TransportError` if it cannot be fetched, and
        :class:`~transports.errors.StoreError` if the file cannot be written."""
        match binary.content:
            case Handle() as handle:
                await self._save(handle, staged, binary.size)
            case Download(url=url) if url[:5].lower() == "blob:":
                await self._save(Handle(url), staged, binary.size)
            case Download() as reference:
                return await self._download(reference, staged, binary, on_download)
            case _:
                with map_os_errors("write a file", staged.path.parent):
                    await in_thread(_write_content, binary, staged.path)
        return binary, ()

    async def _save(self, handle: Handle, staged: Staged, declared: int | None) -> None:
        """Write content that stayed on the far side into ``staged``. ``declared`` is its declared size in bytes."""
        if self.transport is None:
            raise TransportError("this content stayed in the app; only the session that called it can fetch it")

        # Both checks come before any byte is moved.
        if handle.size is not None:
            verify_size(declared, handle.size)
            if handle.size > self.limit:
                raise TooLarge(
                    f"the content has {handle.size} bytes, over the limit of {self.limit}; "
                    "raise ABP_MAX_ARTIFACT_BYTES to accept it",
                    details={"limit": self.limit, "size": handle.size},
                )

        expected_size = handle.size or declared or 0
        # Hash a large file while it is written. A smaller file is hashed faster than a thread starts.
        large_size = 4 << 20
        if expected_size >= large_size and self.transport.features.appends:
            staged.follow()
        with map_os_errors("write a file", staged.path.parent):
            await self.transport.save(handle, staged.path, timeout=self.timeout)

    async def _download(
        self,
        reference: Download,
        staged: Staged,
        binary: BinaryData,
        on_download: Callable[[int, int | None], None] | None,
    ) -> tuple[BinaryData, Sequence[str]]:
        """Download a file into ``staged``. Return its description, and warnings about it."""
        from .http._downloads import download  # late: aiohttp, which most sessions never need
        from .http._request import DownloadRequest, cookies_of

        app = self.transport
        request = DownloadRequest(
            reference=reference,
            size=binary.size,
            limit=self.limit,
            base_url=app.url if app else None,
            server_address=app.server_address if app else None,
            sender=self.sender,
            cookies=cookies_of(app, self.sender),
            allow_private=self.allow_private,
            propagate=self.propagate,
            accept_compression=self.accept_compression,
            on_progress=on_download,
        )
        fetch = partial(download, request, timeout=self.timeout)
        if app is None:
            fetched = await fetch(staged)
        else:
            fetched = await app.fetch_download(reference, staged, fetch)

        description = replace_fields(
            binary,
            mime_type=binary.mime_type or fetched.content_type,
            filename=binary.filename or fetched.filename,
        )
        return description, fetched.warnings

    def content_url(self, binary: BinaryData) -> str | None:
        """Return the absolute URL of content behind a ``downloadUrl``, else ``None``. It may hold credentials."""
        if not isinstance(binary.content, Download):
            return None
        base_url = None
        if self.sender is not None:
            base_url = self.sender.url
        elif self.transport is not None:
            base_url = self.transport.url
        try:
            return urljoin(base_url or "", binary.content.url)
        except ValueError:
            # http://[ and the like.
            return binary.content.url

    async def release(self, binary: BinaryData | ABPError) -> None:
        """Let the far side drop content that it kept. Other content needs no release."""
        if self.transport is not None and isinstance(binary, BinaryData) and isinstance(binary.content, Handle):
            await self.transport.release(binary.content)


def _write_content(binary: BinaryData, path: Path) -> None:
    """Write decoded content to a new file, in one thread; the store measures and syncs the file meanwhile."""
    with path.open("xb", buffering=0) as file:
        for chunk in binary.chunks():
            # Without a buffer, a write may take only a part of what it gets.
            view = memoryview(chunk)
            while view:
                view = view[file.write(view) :]


T = TypeVar("T")

#: Number of values above which an answer is searched in a thread (measured: up to 11 µs for each value).
_MANY = 3000


class Recognised(NamedTuple):
    """An answer and the files that were found in it. ``data`` is the answer, perhaps changed by a layer; ``refs`` are
    files that are stored already; ``configured`` are the matches of field rules. A ``large`` answer is processed in
    threads only."""

    data: object
    files: list[Found]
    refs: Mapping[Place, ArtifactRef]
    configured: Mapping[Place, FieldMatch] = {}
    steps: Sequence[Step] = ()
    warnings: Sequence[str] = ()
    large: bool = False


class Layers:
    """Layers under one policy. ``fetcher`` releases content on the far side that a transformer left out."""

    def __init__(self, policy: RoutingPolicy, fetcher: Fetcher) -> None:
        self._policy = policy
        self._heuristics = policy.search
        self._fetcher = fetcher

    async def recognise(self, data: object, context: TransformContext) -> Recognised:
        """Find the files in an answer: by the policy's transformer or, if it leaves the answer alone, by a search."""
        if self._policy.transformer is not None:
            transformed = await self._transform(self._policy.transformer, data, context)
            if transformed is not None:
                return transformed

        if not is_larger(data, _MANY):
            return self._search(data, context.capability)
        try:
            recognised = await in_thread(self._search, data, context.capability)
        except asyncio.CancelledError:
            await self._release_dropped(find_values(data), ())
            raise
        return recognised._replace(large=True)

    async def _transform(self, transformer: Transformer, data: object, context: TransformContext) -> Recognised | None:
        """Return the transformer's answer, or ``None`` if it leaves the answer to the other layers."""
        original_files = find_values(data)
        try:
            answer = transformer(context.capability, data, context)
            if inspect.isawaitable(answer):
                answer = await answer
        except BaseException:
            await self._release_dropped(original_files, ())
            raise
        if answer is None:
            return None

        others: list[tuple[Place, object]] = []
        files = find_values(answer, others=others)
        await self._release_dropped(original_files, files)
        steps = [Step("custom", "", "the transformer's answer; no other layer read it")]
        return Recognised(answer, files, _references(others), {}, steps, large=is_larger(answer, _MANY))

    def _search(self, data: object, capability: str) -> Recognised:
        """Search configured fields first, then content blocks, descriptors and undeclared base64 at other places."""
        rules = self._policy.rules(capability)
        roots: Sequence[Place] = ((),)
        steps: Sequence[Step] = ()
        if isinstance(data, dict) and not _TEXT_KEYS.isdisjoint(data):
            data, roots, steps = parse_text_blocks(data, rules, self._heuristics)

        others: list[tuple[Place, object]] = []
        warnings: list[str] = []
        if not rules:
            files = find(data, heuristics=self._heuristics, others=others, warnings=warnings)
            return Recognised(data, files, _references(others), {}, steps, warnings)

        matches = {match.place: match for match in match_fields(data, rules, roots)}
        files = [Found(place, match.binary) for place, match in matches.items()]
        # Replace each configured field by None, so that the search finds only other files.
        without_configured = replace_values(data, dict.fromkeys(matches))
        for item in find(without_configured, heuristics=self._heuristics, others=others, warnings=warnings):
            holds_configured_field = any(place[: len(item.path)] == item.path for place in matches)
            if not holds_configured_field:
                files.append(item)
        return Recognised(data, files, _references(others), matches, steps, warnings)

    async def _release_dropped(self, original: Sequence[Found], remaining: Sequence[Found]) -> None:
        """Let the far side drop the content of the ``original`` files that the ``remaining`` files do not have."""
        remaining_content = [item.binary.content for item in remaining if isinstance(item.binary, BinaryData)]
        for item in original:
            if isinstance(item.binary, BinaryData) and item.binary.content not in remaining_content:
                await self._fetcher.release(item.binary)


def _references(values: Sequence[tuple[Place, object]]) -> Mapping[Place, ArtifactRef]:
    """Return the artifact references among values that are not JSON: code in this process stored those files itself."""
    return {place: value for place, value in values if isinstance(value, ArtifactRef)}
