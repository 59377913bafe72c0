"""Large content of results, stored and replaced by links; everything small keeps its bytes.

:class:`Rewriter` replaces content of tools' results, of resources and of prompts."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import msgspec
import pybase64
from mcp_types.version import is_version_at_least

from ....artifacts import ArtifactRef, ArtifactStore
from ....binary import BinaryData, Encoded
from ....binary.detect import Place, field_of, find, replace
from ....errors import ABPError, BadEncoding, ProtocolError, StoreError
from ....protocol import JSONValue, decode_json, encode_json
from ....protocol.schema import fits_at
from ....routing import MIN_BYTES, RoutingPolicy, clamp, match_fields
from ....tasks import in_thread
from .._results import ArtifactView
from ._lines import Line, Run
from ._outlines import Outline, count, names, preview

logger = logging.getLogger("transports")

#: Head of the names of our fields in ``_meta``.
META = "abp-transports/"
#: Largest text in bytes that is searched for files and parsed as JSON; a larger one is stored as it is.
_MAX_PARSED = 16 << 20
#: Most bytes of a preview, and of the first bytes of a text that is not parsed.
_PREVIEW = 2048
#: Smallest block that is replaced because all texts together are over the limit.
_MIN_REPLACED = 1024
#: Most files of one text or structured content that are replaced.
_MAX_FILES = 100
#: Type of the views of MCP Apps.
_VIEW = "mcp-app"
_Fields = dict[str, msgspec.Raw]
_FIELDS = msgspec.json.Decoder(_Fields)
_BLOCKS = msgspec.json.Decoder(list[msgspec.Raw])
_ENCODE = msgspec.json.Encoder().encode


class _Kind(msgspec.Struct):
    type: str = ""


_KIND = msgspec.json.Decoder(_Kind)


@dataclass(slots=True)
class Rewritten:
    """A result with its large content replaced. ``result`` is JSON with marks of long texts; ``refs`` are the stored
    artifacts by their places in the result."""

    result: bytes
    refs: dict[str, ArtifactRef] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Caller:
    """Facts about the request that a result answers: the ``name`` of the tool or the method, the tool's
    ``output_schema``, and the protocol ``version`` of the client."""

    name: str
    output_schema: Mapping[str, object] | None = None
    version: str = ""

    @property
    def has_links(self) -> bool:
        """True if the client knows links to resources as content."""
        return not self.version or is_version_at_least(self.version, "2025-06-18")


class Rewriter:
    """Replacement of values larger than ``max_inline`` bytes by links to artifacts of ``store``.

    ``policy`` has rules for files in undeclared fields. With ``json_previews``, the preview of a JSON text is JSON and
    nothing else. Values are measured as they came, base64 as base64."""

    def __init__(
        self,
        store: ArtifactStore,
        view: ArtifactView,
        *,
        max_inline: int,
        policy: RoutingPolicy,
        json_previews: bool = False,
    ) -> None:
        self.store = store
        self.view = view
        self.max_inline = max_inline
        self._policy = policy
        self._json_previews = json_previews

    async def tool_result(self, line: Line, result: bytes, caller: Caller) -> Rewritten | None:
        """Return the result of a tool with links in the place of large content, or ``None`` if nothing is large.

        A value that cannot be stored stays as it is, with a warning."""
        if line.length(result) <= self.max_inline:
            return None
        work = _Work(self, line, caller)
        fields = _FIELDS.decode(result)
        if "content" in fields:
            fields["content"] = await work.blocks(bytes(fields["content"]))
        structured = fields.get("structuredContent")
        if structured is not None and line.length(bytes(structured)) > self.max_inline:
            fields["structuredContent"], links = await work.structured(bytes(structured))
            if links:
                blocks = _BLOCKS.decode(fields["content"]) if "content" in fields else []
                fields["content"] = msgspec.Raw(_ENCODE([*blocks, *links]))
        return work.rewritten(fields)

    async def resource(self, line: Line, result: bytes, caller: Caller) -> Rewritten | None:
        """Return the result of ``resources/read`` with texts that name links in the place of large contents, or
        ``None`` if nothing is large. Views of MCP Apps stay as they are."""
        if line.length(result) <= self.max_inline:
            return None
        work = _Work(self, line, caller)
        fields = _FIELDS.decode(result)
        if "contents" in fields:
            fields["contents"] = await work.contents(bytes(fields["contents"]))
        return work.rewritten(fields)

    async def prompt(self, line: Line, result: bytes, caller: Caller) -> Rewritten | None:
        """Return the result of ``prompts/get`` with links in the place of large content, or ``None`` if nothing is
        large. A message has one block, so a link that stands beside a text is a message of its own."""
        if line.length(result) <= self.max_inline:
            return None
        work = _Work(self, line, caller)
        fields = _FIELDS.decode(result)
        if "messages" in fields:
            fields["messages"] = await work.messages(bytes(fields["messages"]))
        return work.rewritten(fields)


class _Work:
    """Rewriting of one result."""

    def __init__(self, rewriter: Rewriter, line: Line, caller: Caller) -> None:
        self._limit = rewriter.max_inline
        self._store = rewriter.store
        self._view = rewriter.view
        self._policy = rewriter._policy
        self._json_previews = rewriter._json_previews
        self._line = line
        self._caller = caller
        self._refs: dict[str, ArtifactRef] = {}
        self._warnings: list[str] = []

    def rewritten(self, fields: _Fields) -> Rewritten | None:
        """Return the result, with our facts in its ``_meta``; ``None`` if nothing was replaced."""
        if not self._refs and not self._warnings:
            return None
        meta = _FIELDS.decode(fields["_meta"]) if "_meta" in fields else {}
        if self._refs:
            listed = {place: self._about(ref) for place, ref in self._refs.items()}
            meta[f"{META}artifacts"] = msgspec.Raw(_ENCODE(listed))
        if self._warnings:
            meta[f"{META}warnings"] = msgspec.Raw(_ENCODE(self._warnings))
        fields["_meta"] = msgspec.Raw(_ENCODE(meta))
        return Rewritten(_ENCODE(fields), self._refs, self._warnings)

    # --- blocks -------------------------------------------------------------------------------------------------------

    async def blocks(self, content: bytes) -> msgspec.Raw:
        """Return the blocks of a result, each that is too large replaced; of very many, one text and a link."""
        value = self._line.value(content)
        if value is not None:
            shown, ref = await self._value("content", value)
            return msgspec.Raw(_ENCODE([{"type": "text", "text": shown}, *self._links([ref], {})]))
        given = [bytes(block) for block in _BLOCKS.decode(content)]
        chosen = self._too_large(given)
        made: list[object] = []
        for at, raw in enumerate(given):
            made += await self._kept_on_error(f"content.{at}", raw) if at in chosen else [msgspec.Raw(raw)]
        return msgspec.Raw(_ENCODE(made))

    async def messages(self, messages: bytes) -> msgspec.Raw:
        """Return the messages of a prompt, each block that is too large replaced; of very many, one text and a link."""
        value = self._line.value(messages)
        if value is not None:
            shown, ref = await self._value("messages", value)
            blocks = [{"type": "text", "text": shown}, *self._links([ref], {})]
            return msgspec.Raw(_ENCODE([{"role": "user", "content": block} for block in blocks]))
        given = [_FIELDS.decode(message) for message in _BLOCKS.decode(messages)]
        contents = [bytes(message.get("content", b"null")) for message in given]
        chosen = self._too_large(contents)
        made: list[object] = []
        for at, message in enumerate(given):
            if at not in chosen:
                made.append(message)
                continue
            for block in await self._kept_on_error(f"messages.{at}.content", contents[at]):
                made.append({**message, "content": block})
        return msgspec.Raw(_ENCODE(made))

    def _too_large(self, blocks: Sequence[bytes]) -> set[int]:
        """Return the places of the blocks to replace: those over the limit, and the largest texts until all texts are
        together within it."""
        sizes = [self._line.length(block) for block in blocks]
        chosen = {at for at, size in enumerate(sizes) if size > self._limit}
        texts = [at for at, block in enumerate(blocks) if at not in chosen and _is_text(block)]
        left = sum(sizes[at] for at in texts)
        for at in sorted(texts, key=lambda at: -sizes[at]):
            if left <= self._limit or sizes[at] < _MIN_REPLACED:
                break
            chosen.add(at)
            left -= sizes[at]
        return chosen

    async def _kept_on_error(self, place: str, raw: bytes) -> list[object]:
        try:
            made = await self._block(place, msgspec.json.decode(raw))
        except (ABPError, msgspec.MsgspecError) as error:
            self._warn(place, error)
            made = None
        return [msgspec.Raw(raw)] if made is None else made

    async def _block(self, place: str, block: object) -> list[object] | None:
        """Return the blocks in the place of a large one; ``None`` to keep it."""
        if not isinstance(block, dict):
            return None
        kind, data = block.get("type"), block.get("data")
        if kind == "text" and isinstance(block.get("text"), str):
            text, refs = await self._text(f"{place}.text", block["text"], None, None)
            return [*([{**block, "text": text}] if text else []), *self._links(refs, block)]
        if kind == "resource" and isinstance(inner := block.get("resource"), dict):
            return await self._embedded(place, block, inner)
        if isinstance(data, str) and isinstance(block.get("mimeType"), str) and self._size(data) > _MIN_REPLACED:
            ref = await self._base64(f"{place}.data", data, block["mimeType"], None)
            return self._links([ref], block)
        return None

    async def _embedded(self, place: str, block: dict[str, object], inner: dict[str, object]) -> list[object] | None:
        mime_type, blob, text = _text_of(inner.get("mimeType")), inner.get("blob"), inner.get("text")
        if _is_view(inner):
            return None
        if isinstance(blob, str):
            ref = await self._base64(f"{place}.resource.blob", blob, mime_type, _name(inner.get("uri")))
            return self._links([ref], block)
        if isinstance(text, str):
            shown, refs = await self._text(f"{place}.resource.text", text, mime_type, _name(inner.get("uri")))
            kept = {**block, "resource": {**inner, "text": shown or _named(refs)}}
            return [kept, *self._links(refs, block)]
        return None

    def _links(self, refs: Sequence[ArtifactRef], block: Mapping[str, object]) -> list[object]:
        """Return links to artifacts as blocks, with the annotations of the block in whose place they stand."""
        if not self._caller.has_links:
            return [{"type": "text", "text": _named([ref])} for ref in refs]
        links = [link.model_dump(mode="json", by_alias=True, exclude_none=True) for link in self._view.links(refs)]
        own = block.get("annotations")
        return [{**link, "annotations": own} if isinstance(own, dict) else link for link in links]

    # --- resources ----------------------------------------------------------------------------------------------------

    async def contents(self, contents: bytes) -> msgspec.Raw:
        """Return the contents of resources, each that is too large replaced by a text; of very many, all by one."""
        value = self._line.value(contents)
        if value is not None:
            shown, ref = await self._value("contents", value)
            meta = {f"{META}artifacts": [self._about(ref)]}
            return msgspec.Raw(_ENCODE([{"uri": ref.uri, "mimeType": "text/plain", "text": shown, "_meta": meta}]))
        made: list[object] = []
        for at, raw in enumerate(_BLOCKS.decode(contents)):
            kept: object = raw
            if self._line.length(bytes(raw)) > self._limit:
                try:
                    kept = await self._content(f"contents.{at}", msgspec.json.decode(raw)) or raw
                except (ABPError, msgspec.MsgspecError) as error:
                    self._warn(f"contents.{at}", error)
            made.append(kept)
        return msgspec.Raw(_ENCODE(made))

    async def _content(self, place: str, item: object) -> object | None:
        if not isinstance(item, dict) or _is_view(item):
            return None
        mime_type, name = _text_of(item.get("mimeType")), _name(item.get("uri"))
        if isinstance(item.get("blob"), str):
            ref = await self._base64(f"{place}.blob", item.pop("blob"), mime_type, name)
            shown, refs, item["mimeType"] = "", [ref], "text/plain"
        elif isinstance(item.get("text"), str):
            shown, refs = await self._text(f"{place}.text", item["text"], mime_type, name)
        else:
            return None
        item["text"] = shown or _named(refs)
        meta = item.get("_meta")
        artifacts = [self._about(ref) for ref in refs]
        return {**item, "_meta": {**(meta if isinstance(meta, dict) else {}), f"{META}artifacts": artifacts}}

    # --- values -------------------------------------------------------------------------------------------------------

    async def _base64(self, place: str, value: str, mime_type: str | None, name: str | None) -> ArtifactRef:
        """Store base64. If it is broken, the text itself is stored, with a warning."""
        try:
            return await self._put(place, self._decoded(value), mime_type, name)
        except BadEncoding as error:
            self._warn(place, error)
            return await self._put(place, self._utf8(value), "text/plain", None)

    async def _text(
        self, place: str, value: str, mime_type: str | None, name: str | None
    ) -> tuple[str, list[ArtifactRef]]:
        """Store a long text, or the files in it. Return the text in its place, empty for a file, and the artifacts."""
        run = self._line.runs.get(value)
        if self._size(value) > _MAX_PARSED:
            return await self._long_text(place, value, mime_type, name)
        text = self._line.text(run) if run else value
        whole = self._heuristic(text)
        if whole is not None:
            return "", [await self._put_file(place, whole)]
        tree = await in_thread(_json_of, text)
        refs: list[ArtifactRef] = []
        if tree is not None:
            tree, refs = await self._files_in(place, tree)
            if refs and len(shorter := encode_json(tree).decode()) <= self._limit:
                return shorter, refs
        kind = mime_type or ("application/json" if tree is not None else "text/plain")
        ref = await self._put(place, _once(text.encode("utf-8", "surrogatepass")), kind, name)
        refs.append(ref)
        if tree is None:
            return self._preview(text[:_PREVIEW], _lines_of(text), ref), refs
        shown = encode_json(clamp(cast("JSONValue", tree), max(MIN_BYTES, min(_PREVIEW, self._limit)))).decode()
        return (shown if self._json_previews else self._preview(shown, _shape(tree), ref)), refs

    async def _long_text(
        self, place: str, value: str, mime_type: str | None, name: str | None
    ) -> tuple[str, list[ArtifactRef]]:
        """Store a text over 16 MiB. It is not searched for files."""
        head = b"".join(self._utf8_head(value)).decode("utf-8", "replace")
        outline = await in_thread(Outline.of, self._utf8(value)) if head.lstrip()[:1] in ("{", "[") else None
        kind = mime_type or ("text/plain" if outline is None else "application/json")
        ref = await self._put(place, self._utf8(value), kind, name)
        if outline is None:
            return self._preview(head, f"{ref.size_bytes:,} bytes", ref), [ref]
        return self._outlined(outline, ref), [ref]

    async def _value(self, place: str, value: Run) -> tuple[str, ArtifactRef]:
        """Store a list or an object that is too long to be parsed. Return the text in its place, and the artifact."""
        ref = await self._put(place, self._line.read(value), "application/json", None)
        if value.outline is None:
            return f"JSON nested very deeply; the whole is {_named([ref])}", ref
        return self._outlined(value.outline, ref), ref

    def _outlined(self, outline: bytes, ref: ArtifactRef) -> str:
        try:
            tree = decode_json(outline)
        except ProtocolError:  # no JSON after all
            return self._preview("", f"{ref.size_bytes:,} bytes", ref)
        shown = encode_json(self._shortened(tree, plain=False)).decode()
        return shown if self._json_previews else self._preview(shown, _shape(tree), ref)

    def _shortened(self, tree: object, *, plain: bool) -> object:
        """Return an outline short enough to be shown. If it is ``plain``, with nothing but items of its lists."""
        limit, kept = max(MIN_BYTES, min(_PREVIEW, self._limit)), 64
        while True:
            shorter = preview(tree, kept, self._shown, plain=plain)
            if len(encode_json(shorter)) <= limit:
                return shorter
            if kept == 1:
                return shorter if plain else clamp(cast("JSONValue", shorter), limit)
            kept //= 2

    def _shown(self, text: str) -> str:
        """Return a text as previews have it: a long one stays in the file."""
        run = self._line.runs.get(text)
        return text if run is None else f"… {len(run):,} bytes"

    def _preview(self, head: str, shape: str, ref: ArtifactRef) -> str:
        return f"{head}\n… ({shape}; the whole is {_named([ref])})"

    async def _files_in(self, place: str, tree: object) -> tuple[object, list[ArtifactRef]]:
        """Store the files in a tree of JSON, and return it with references in their places."""
        files: dict[Place, BinaryData] = {}
        try:
            files = {match.place: match.binary for match in match_fields(tree, self._policy.rules(self._caller.name))}
            for found in await in_thread(find, tree, heuristics=self._policy.search):
                if isinstance(found.binary, BinaryData) and isinstance(found.binary.content, bytes | Encoded):
                    files.setdefault(found.path, found.binary)
        except ProtocolError:  # nested too deeply
            return tree, []
        refs: dict[Place, ArtifactRef] = {}
        for path, binary in list(files.items())[:_MAX_FILES]:
            if not any(path[:at] in files for at in range(len(path))):
                try:
                    refs[path] = await self._put_file(".".join(filter(None, (place, field_of(path)))), binary)
                except BadEncoding as error:
                    self._warn(field_of(path), error)
        return replace(tree, {path: _named([ref]) for path, ref in refs.items()}), [*refs.values()]

    def _heuristic(self, text: str) -> BinaryData | None:
        search = self._policy.search
        return None if search is None else search.recognise(text)

    # --- structured content -------------------------------------------------------------------------------------------

    async def structured(self, raw: bytes) -> tuple[msgspec.Raw, list[object]]:
        """Return the structured content with short texts in the place of files and long texts, as far as the tool's
        schema allows, and links. If it is still too large, its lists are cut, and the whole is stored."""
        try:
            value = self._line.value(raw)
            return await (self._structured(raw) if value is None else self._long_structured(raw, value))
        except (ABPError, msgspec.MsgspecError) as error:
            self._warn("structuredContent", error)
            return msgspec.Raw(raw), []

    async def _structured(self, raw: bytes) -> tuple[msgspec.Raw, list[object]]:
        tree = await in_thread(decode_json, raw)
        refs: list[ArtifactRef] = []
        for path, value in [*_texts_in(tree)]:
            if self._size(value) <= self._limit:
                continue
            place = f"structuredContent.{field_of(path)}"
            if not self._fits(replace(tree, {path: _NAME}), path):
                self._warnings.append(
                    f"{place} stays as it is, {self._size(value):,} bytes: outputSchema allows no link"
                )
                continue
            shown, stored = await self._file_or_text(place, path, value, tree)
            shorter = shown or _named(stored)
            tree = replace(
                tree, {path: shorter if self._fits(replace(tree, {path: shorter}), path) else _named(stored)}
            )
            refs += stored
        smaller = encode_json(tree)
        if self._line.length(smaller) > self._limit and not self._line_marks(smaller):
            smaller, more = await self._cut(tree, raw)
            refs += more
        return msgspec.Raw(smaller), self._links(refs, {})

    async def _file_or_text(self, place: str, path: Place, value: str, tree: object) -> tuple[str, list[ArtifactRef]]:
        """Store a long text of structured content: a file if the fields beside it, a rule or its signature say so."""
        beside: object = tree
        for step in path[:-1]:
            beside = beside[step]  # type: ignore[index]  # a place of the tree
        mime_type = _text_of(beside.get("mimeType")) if isinstance(beside, dict) else None
        name = (
            next((_text_of(beside.get(key)) for key in ("filename", "name") if key in beside), None)
            if isinstance(beside, dict)
            else None
        )
        key = path[-1] if path else ""
        declared = key in ("blob", "data") and mime_type is not None
        if declared or await self._is_base64(value):
            try:
                return "", [await self._put(place, self._decoded(value), mime_type, name)]
            except BadEncoding:
                pass
        return await self._text(place, value, mime_type, name)

    async def _is_base64(self, value: str) -> bool:
        """Return whether a long text begins like a file in base64."""
        run = self._line.runs.get(value)
        head = next(self._line.read(run), b"")[:8192].decode("utf-8", "replace") if run else value[:8192]
        return self._heuristic(head[: len(head) // 4 * 4]) is not None

    async def _cut(self, tree: object, raw: bytes) -> tuple[bytes, list[ArtifactRef]]:
        """Return structured content of many values cut to a preview, and the artifact of the whole."""
        limit = max(MIN_BYTES, min(_PREVIEW, self._limit))
        schema = self._caller.output_schema
        shown = _with_short_lists(tree, limit) if schema else clamp(cast("JSONValue", tree), limit)
        encoded = encode_json(shown)
        if (schema and not fits_at(schema, shown, ())) or len(encoded) > self._limit:
            self._warnings.append(
                f"structuredContent stays as it is, {len(raw):,} bytes: outputSchema allows nothing shorter"
            )
            return encode_json(tree), []
        whole = b"".join(self._line.whole(raw))
        ref = await self._put("structuredContent", _once(whole), "application/json", None)
        return encoded, [ref]

    async def _long_structured(self, raw: bytes, value: Run) -> tuple[msgspec.Raw, list[object]]:
        """Return structured content that is too long to be parsed: cut, with a link to the whole."""
        schema = self._caller.output_schema
        tree = None if value.outline is None else self._shortened(decode_json(value.outline), plain=schema is not None)
        encoded = encode_json(tree)
        if not isinstance(tree, dict) or (schema and not fits_at(schema, tree, ())) or len(encoded) > self._limit:
            reason = "it is nested too deeply" if tree is None else "outputSchema allows nothing shorter"
            self._warnings.append(f"structuredContent stays as it is, {len(value):,} bytes: {reason}")
            return msgspec.Raw(raw), []
        ref = await self._put("structuredContent", self._line.read(value), "application/json", None)
        return msgspec.Raw(encoded), self._links([ref], {})

    def _fits(self, tree: object, path: Place) -> bool:
        schema = self._caller.output_schema
        return schema is None or fits_at(schema, tree, path)

    def _line_marks(self, data: bytes) -> bool:
        return self._line.length(data) != len(data)

    # --- storing ------------------------------------------------------------------------------------------------------

    def _about(self, ref: ArtifactRef) -> dict[str, object]:
        about = {"uri": ref.uri, "mimeType": ref.mime_type, "size": ref.size_bytes, "sha256": ref.sha256}
        url = self._view.url(ref)
        return {**about, **({"url": url} if url else {})}

    def _warn(self, place: str, error: Exception) -> None:
        reason = error.message if isinstance(error, ABPError) else str(error)
        self._warnings.append(f"{place}: {reason[:300]}")

    def _size(self, value: str) -> int:
        run = self._line.runs.get(value)
        return len(value) if run is None else len(run)

    async def _put_file(self, place: str, binary: BinaryData) -> ArtifactRef:
        return await self._put(place, binary.chunks(), binary.mime_type, binary.filename)

    async def _put(self, place: str, chunks: Iterable[bytes], mime_type: str | None, name: str | None) -> ArtifactRef:
        """Store content and return its reference."""
        async with self._store.stage() as staged:
            pieces = iter(chunks)
            while (chunk := await in_thread(next, pieces, None)) is not None:
                await staged.write(chunk)
            ref = await staged.commit(
                mime_type=mime_type,
                filename=name,
                namespace=self._caller.name or None,
                meta={"capability": self._caller.name},
                durability="process",
            )
        if not ref.stored:
            raise StoreError("there is no artifact store")
        self._refs[place] = ref
        return ref

    def _decoded(self, value: str) -> Iterator[bytes]:
        """Yield the content of base64. Raises :class:`~transports.errors.BadEncoding`."""
        run = self._line.runs.get(value)
        if run is None:
            yield from Encoded(value, "base64").chunks()
            return
        escaped = False
        at = 0
        for piece in self._line.read(run):
            escaped = escaped or b"\\" in piece
            if escaped:
                break
            at += len(piece)
            if piece[-1:] == b"=" and at < len(run):
                raise BadEncoding("base64 padding stands in the middle of the text")
            try:
                yield pybase64.b64decode(piece, validate=True)
            except ValueError as error:
                raise BadEncoding(f"the text is not strictly valid base64 ({error})") from error
        if escaped:  # a solidus may be written \/
            if at:
                raise BadEncoding("the text has escapes")
            yield from Encoded(self._line.text(run), "base64").chunks()

    def _utf8(self, value: str) -> Iterator[bytes]:
        """Yield a text as UTF-8. A text over 16 MiB is not held in memory."""
        run = self._line.runs.get(value)
        if run is None:
            yield value.encode("utf-8", "surrogatepass")
        elif len(run) <= _MAX_PARSED:
            yield self._line.text(run).encode("utf-8", "surrogatepass")
        else:
            yield from _unescaped(self._line.read(run))

    def _utf8_head(self, value: str) -> Iterator[bytes]:
        run = self._line.runs.get(value)
        head = next(self._line.read(run), b"")[: 2 * _PREVIEW] if run else b""
        yield b"".join(_unescaped([head]))[:_PREVIEW]


#: Text that stands for a link when a schema is asked whether it allows one.
_NAME = "artifact://tool_0123456789ab (application/octet-stream, 1,000,000 bytes)"


def _named(refs: Sequence[ArtifactRef]) -> str:
    """Return a short text that names artifacts."""
    return ", ".join(f"{ref.uri} ({ref.mime_type}, {ref.size_bytes:,} bytes)" for ref in refs)


def _once(data: bytes) -> Iterator[bytes]:
    yield data


def _is_text(block: bytes) -> bool:
    """Return whether a block is read by a model as text: not an image, a sound or a link."""
    try:
        return _KIND.decode(block).type in ("text", "resource")
    except msgspec.MsgspecError:
        return False


def _is_view(resource: Mapping[str, object]) -> bool:
    """Return whether a resource is a view of MCP Apps."""
    uri, mime_type = resource.get("uri"), resource.get("mimeType")
    return (isinstance(uri, str) and uri.startswith("ui:")) or (isinstance(mime_type, str) and _VIEW in mime_type)


def _text_of(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _name(uri: object) -> str | None:
    """Return the last segment of a URI, if it looks like a file name."""
    last = uri.partition("?")[0].partition("#")[0].rpartition("/")[2] if isinstance(uri, str) else ""
    return last if "." in last.strip(".") else None


def _json_of(text: str) -> object:
    """Return an object or a list that a text is as JSON, or ``None``."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return decode_json(text)
    except ProtocolError:
        return None


def _lines_of(text: str) -> str:
    return f"{len(text):,} characters, {text.count(chr(10)) + 1:,} lines"


def _shape(tree: object) -> str:
    """Return the shape of JSON in words: its keys, or the number of its items and the keys of the first."""
    if isinstance(tree, list):
        first = tree[0] if tree else None
        keys = f", each with {_keys(first)}" if isinstance(first, dict) else ""
        return f"a list of {count(tree):,} items{keys}"
    assert isinstance(tree, dict)
    return f"an object with {_keys(tree)}"


def _keys(value: Mapping[str, object]) -> str:
    listed, total = names(value)
    more = f" and {total - 20:,} more keys" if total > 20 else ""
    return f"{', '.join(key[:40] for key in listed[:20])}{more}"


def _texts_in(tree: object, path: Place = ()) -> Iterator[tuple[Place, str]]:
    """Yield the texts of a tree with their places."""
    waiting: list[tuple[Place, object]] = [(path, tree)]
    while waiting:
        at, node = waiting.pop()
        if isinstance(node, str):
            yield at, node
        elif isinstance(node, dict):
            waiting += [((*at, key), value) for key, value in node.items()]
        elif isinstance(node, list):
            waiting += [((*at, index), value) for index, value in enumerate(node)]


def _with_short_lists(tree: object, limit: int) -> object:
    """Return a tree whose lists have so few items that it has ``limit`` bytes, or one item each."""
    kept = 64
    while True:
        shorter = _first_items(tree, kept)
        if kept == 1 or len(encode_json(shorter)) <= limit:
            return shorter
        kept //= 2


def _first_items(node: object, kept: int) -> object:
    if isinstance(node, dict):
        return {key: _first_items(value, kept) for key, value in node.items()}
    if isinstance(node, list):
        return [_first_items(value, kept) for value in node[:kept]]
    return node


def _unescaped(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the text of pieces of a JSON text as UTF-8."""
    held = b""
    for piece in pieces:
        held += piece
        found = _UNITS.match(held)
        assert found is not None
        end = found.end() if len(held) - found.end() <= _LONGEST_UNIT else len(held)
        yield _plain(held[:end])
        held = held[end:]
    if held:
        yield _plain(held)


def _plain(part: bytes) -> bytes:
    """Return a part of a JSON text, with whole escapes, as UTF-8."""
    if b"\\" not in part:
        return part
    # in one step: a call for each escape takes minutes for a text of a gigabyte
    head = part.lstrip(_CONTINUED)
    body = head.rstrip(_NOT_ASCII)
    try:
        plain = msgspec.json.decode(b'"%s"' % body, type=str).encode()
    except (msgspec.DecodeError, UnicodeError):  # half of a pair, or no JSON
        return _ESCAPES.sub(_unescape, part)
    return part[: len(part) - len(head)] + plain + head[len(body) :]


#: Bytes and whole escapes. A pair of ``\\uD83D\\uDE00`` is one.
_UNITS = re.compile(
    rb"(?:[^\\]++|\\[^u]|\\u[dD][89abAB]..\\u....|\\u[dD][89abAB]..(?=[^\\]|\\[^u])|\\u(?![dD][89abAB])....)*+",
    re.DOTALL,
)
_LONGEST_UNIT = 12
#: Bytes of characters that may be cut by the end of a part.
_CONTINUED, _NOT_ASCII = bytes(range(0x80, 0xC0)), bytes(range(0x80, 0x100))
_ESCAPES = re.compile(rb"(?:\\u[0-9A-Fa-f]{4}|\\[^u])++", re.DOTALL)


def _unescape(escapes: re.Match[bytes]) -> bytes:
    try:
        return msgspec.json.decode(b'"%s"' % escapes[0], type=str).encode("utf-8", "surrogatepass")
    except (msgspec.DecodeError, UnicodeError):  # half of a pair
        return escapes[0]
