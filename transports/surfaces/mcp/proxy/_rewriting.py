"""Large content of results, stored and replaced by links; everything small keeps its bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

import msgspec

from ...._internal.tasks import in_thread
from ....artifacts._base import ArtifactStore
from ....artifacts._ref import ArtifactRef
from ....errors import ABPError, BadEncoding, ProtocolError, StoreError
from ....protocol._find_content import Place, block_content, field_of, filename_of, find, replace
from ....protocol._strict_json import JSONValue, decode_json, encode_json, without_half_pairs
from ....protocol.binary import BinaryData, Encoded
from ....protocol.schema import fits_at
from ....routing._guard import MIN_BYTES, clamp
from ....routing._layers import match_fields
from ....routing._policy import RoutingPolicy
from .._artifacts import ArtifactView
from ._messages import LINKS_SINCE

#: Head of the names of the proxy's fields in ``_meta``.
META = "abp-transports/"
#: Most bytes of a preview.
_PREVIEW_BYTES = 2048
#: Smallest block that is replaced because all texts together are over the limit.
_MIN_REPLACED = 1024
#: Most files of one text or structured content that are replaced.
_MAX_FILES = 100
#: Placeholder for a link, to check whether a schema allows one.
_PLACEHOLDER = "artifact://tool_0123456789ab (application/octet-stream, 1,000,000 bytes)"

Fields = dict[str, msgspec.Raw]
FIELDS = msgspec.json.Decoder(Fields)
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])


class _Kind(msgspec.Struct):
    type: str = ""


_KIND = msgspec.json.Decoder(_Kind)


def fields_of(raw: bytes | msgspec.Raw) -> Fields:
    """Return the fields of an object as they are written, with U+FFFD in the place of each half of a pair of
    surrogates. Raises ``ValueError`` for what is not an object."""
    try:
        return FIELDS.decode(raw)
    except ValueError:
        return FIELDS.decode(without_half_pairs(bytes(raw)))


@dataclass(slots=True)
class Rewritten:
    """A result with its large content replaced, and the number of files that were stored."""

    result: bytes
    files: int


@dataclass(frozen=True, slots=True)
class Caller:
    """Facts about the request that a result answers: its ``method``, the ``name`` of the tool or the method, the tool's
    ``output_schema``, and the protocol ``version`` of the client."""

    method: str
    name: str
    output_schema: Mapping[str, object] | None = None
    version: str = ""

    @property
    def has_links(self) -> bool:
        """True if the client knows links to resources as content."""
        return not self.version or self.version >= LINKS_SINCE


class Rewriter:
    """Replacement of values larger than ``max_inline`` bytes by links to artifacts of ``store``.

    ``policy`` has rules for files in undeclared fields. With ``json_previews``, the preview of a JSON text is JSON and
    nothing else. Values are measured as they came, base64 as base64."""

    def __init__(
        self,
        store: ArtifactStore,
        *,
        max_inline: int,
        policy: RoutingPolicy,
        json_previews: bool = False,
    ) -> None:
        self.store = store
        self.view = ArtifactView()
        self.max_inline = max_inline
        self.policy = policy
        self.json_previews = json_previews

    async def rewrite(self, result: msgspec.Raw, caller: Caller) -> Rewritten | None:
        """Return the result of a tool, a prompt or ``resources/read`` with links in the place of large content;
        ``None`` if nothing is large. A value that cannot be stored stays as it is, with a warning.

        Raises ``ValueError`` for a result of another form."""
        if len(result) <= self.max_inline:
            return None
        work = _Rewriting(self, caller)
        fields = FIELDS.decode(result)
        if caller.method == "resources/read":
            if "contents" in fields:
                fields["contents"] = await work.contents(fields["contents"])
        elif caller.method == "prompts/get":
            if "messages" in fields:
                fields["messages"] = await work.messages(fields["messages"])
        else:
            if "content" in fields:
                fields["content"] = await work.blocks(fields["content"])
            structured = fields.get("structuredContent")
            if structured is not None and len(structured) > self.max_inline:
                fields["structuredContent"], links = await work.structured(structured)
                blocks = _ITEMS.decode(fields.get("content", b"[]"))
                fields["content"] = _raw([*blocks, *links])
        return work.finish(fields)


class _Rewriting:
    def __init__(self, rewriter: Rewriter, caller: Caller) -> None:
        self._rewriter = rewriter
        self._limit = rewriter.max_inline
        self._caller = caller
        self._refs: dict[str, ArtifactRef] = {}
        self._linked: set[str] = set()
        self._warnings: list[str] = []

    def finish(self, fields: Fields) -> Rewritten | None:
        """Return the result, with the proxy's facts in its ``_meta``; ``None`` if nothing was replaced."""
        if not self._refs and not self._warnings:
            return None
        meta = FIELDS.decode(fields.get("_meta", b"{}"))
        if self._refs:
            meta[f"{META}artifacts"] = _raw({place: self._facts(ref) for place, ref in self._refs.items()})
        if self._warnings:
            meta[f"{META}warnings"] = _raw(self._warnings)
        fields["_meta"] = _raw(meta)
        return Rewritten(encode_json(fields), len({ref.id for ref in self._refs.values()}))

    # --- blocks -------------------------------------------------------------------------------------------------------

    async def blocks(self, content: msgspec.Raw) -> msgspec.Raw:
        """Return the blocks of a result, each that is too large replaced."""
        blocks = _ITEMS.decode(content)
        large = self._too_large(blocks)
        rewritten: list[object] = []
        for index, block in enumerate(blocks):
            if index in large:
                rewritten += await self._replaced(f"content.{index}", block)
            else:
                rewritten.append(block)
        return _raw(rewritten)

    async def messages(self, messages: msgspec.Raw) -> msgspec.Raw:
        """Return the messages of a prompt, each block that is too large replaced."""
        decoded = [FIELDS.decode(message) for message in _ITEMS.decode(messages)]
        blocks = [message.get("content", msgspec.Raw(b"null")) for message in decoded]
        large = self._too_large(blocks)
        rewritten: list[object] = []
        for index, message in enumerate(decoded):
            if index not in large:
                rewritten.append(message)
                continue
            self._linked.clear()  # each message has its link
            for block in await self._replaced(f"messages.{index}.content", blocks[index]):
                rewritten.append({**message, "content": block})
        return _raw(rewritten)

    def _too_large(self, blocks: Sequence[msgspec.Raw]) -> set[int]:
        """Return the indexes of the blocks to replace: those over the limit, and the largest texts until all texts are
        together within it."""
        large = {index for index, block in enumerate(blocks) if len(block) > self._limit}
        texts = [index for index, block in enumerate(blocks) if index not in large and _is_text(block)]
        total = sum(len(blocks[index]) for index in texts)
        for index in sorted(texts, key=lambda index: -len(blocks[index])):
            if total <= self._limit or len(blocks[index]) < _MIN_REPLACED:
                break
            large.add(index)
            total -= len(blocks[index])
        return large

    async def _replaced(self, place: str, block: msgspec.Raw) -> list[object]:
        """Return the blocks in the place of a large one, or that block if it cannot be replaced."""
        try:
            decoded = await in_thread(msgspec.json.decode, block)
            if isinstance(decoded, dict):
                replaced = await self._replaced_block(place, decoded)
                if replaced is not None:
                    return replaced
        except (ABPError, ValueError) as error:
            self._warn(place, error)
        return [block]

    async def _replaced_block(self, place: str, block: dict[str, object]) -> list[object] | None:
        """Return the blocks in the place of a large one; ``None`` to keep it."""
        kind = block.get("type")
        text = block.get("text")
        resource = block.get("resource")
        data = block.get("data")
        mime_type = _text_of(block.get("mimeType"))
        if kind == "text" and isinstance(text, str):
            shown, refs = await self._store_text(f"{place}.text", text, None, None)
            links = self._links(refs, block)
            return [{**block, "text": shown}, *links] if shown else links
        if kind == "resource" and isinstance(resource, dict):
            return await self._embedded(place, block, resource)
        if isinstance(data, str) and (mime_type or kind in ("image", "audio")) and len(data) > _MIN_REPLACED:
            ref = await self._store_base64(f"{place}.data", data, mime_type, None)
            return self._links([ref], block)
        return None

    async def _embedded(self, place: str, block: dict[str, object], resource: dict[str, object]) -> list[object] | None:
        mime_type = _text_of(resource.get("mimeType"))
        filename = filename_of(resource.get("uri"))
        blob = resource.get("blob")
        text = resource.get("text")
        if isinstance(blob, str):
            ref = await self._store_base64(f"{place}.resource.blob", blob, mime_type, filename)
            return self._links([ref], block, resource)
        if isinstance(text, str):
            shown, refs = await self._store_text(f"{place}.resource.text", text, mime_type, filename)
            shortened = {**block, "resource": {**resource, "text": shown or _named(refs)}}
            return [shortened, *self._links(refs, block)]
        return None

    def _links(
        self, refs: Sequence[ArtifactRef], block: Mapping[str, object], resource: Mapping[str, object] | None = None
    ) -> list[object]:
        """Return links to artifacts that have none yet, as blocks.

        They keep the annotations and the ``_meta`` of the block in whose place they stand, and what a ``resource`` in
        it says of itself."""
        new = [ref for ref in refs if ref.id not in self._linked]
        self._linked |= {ref.id for ref in new}
        if not self._caller.has_links:
            return [{"type": "text", "text": _named([ref])} for ref in new]
        about: dict[str, object] = {}
        for part in (resource or {}, block):
            about |= _object_of(part.get("_meta"))
        if resource is not None and isinstance(resource.get("uri"), str):
            about[f"{META}uri"] = resource["uri"]
        links: list[object] = []
        for link in self._rewriter.view.links(new):
            link["_meta"] = {**about, **_object_of(link["_meta"])}
            if isinstance(block.get("annotations"), dict):
                link["annotations"] = block["annotations"]
            links.append(link)
        return links

    # --- resources ----------------------------------------------------------------------------------------------------

    async def contents(self, contents: msgspec.Raw) -> msgspec.Raw:
        """Return the contents of resources, each that is too large replaced by a text."""
        rewritten: list[object] = []
        for index, item in enumerate(_ITEMS.decode(contents)):
            replaced: object = None
            if len(item) > self._limit:
                place = f"contents.{index}"
                try:
                    replaced = await self._replaced_content(place, await in_thread(msgspec.json.decode, item))
                except (ABPError, ValueError) as error:
                    self._warn(place, error)
            rewritten.append(replaced or item)
        return _raw(rewritten)

    async def _replaced_content(self, place: str, item: object) -> object | None:
        if not isinstance(item, dict) or _is_view(item):
            return None
        mime_type = _text_of(item.get("mimeType"))
        filename = filename_of(item.get("uri"))
        if isinstance(item.get("blob"), str):
            refs = [await self._store_base64(f"{place}.blob", item.pop("blob"), mime_type, filename)]
            item["text"] = _named(refs)
            item["mimeType"] = "text/plain"
        elif isinstance(item.get("text"), str):
            shown, refs = await self._store_text(f"{place}.text", item["text"], mime_type, filename)
            item["text"] = shown or _named(refs)
        else:
            return None
        facts = [self._facts(ref) for ref in refs]
        return {**item, "_meta": {**_object_of(item.get("_meta")), f"{META}artifacts": facts}}

    # --- values -------------------------------------------------------------------------------------------------------

    async def _store_base64(self, place: str, text: str, mime_type: str | None, filename: str | None) -> ArtifactRef:
        """Store base64. If it is broken, the text itself is stored, with a warning."""
        try:
            return await self._put_file(place, BinaryData(block_content(text), mime_type, None, filename))
        except BadEncoding as error:
            self._warn(place, error)
            return await self._put(place, [_utf8(text)], "text/plain", None)

    async def _store_text(
        self, place: str, text: str, mime_type: str | None, filename: str | None
    ) -> tuple[str, list[ArtifactRef]]:
        """Store a long text, or the files in it. Return the text in its place, empty for a file, and the artifacts."""
        file = await in_thread(self._recognised, text)
        if file is not None:
            return "", [await self._put_file(place, file)]
        tree = await in_thread(_json_of, text)
        if tree is None:
            ref = await self._put(place, [_utf8(text)], mime_type or "text/plain", filename)
            lines = text.count("\n") + 1
            return _preview(text[:_PREVIEW_BYTES], f"{len(text):,} characters, {lines:,} lines", ref), [ref]
        tree, refs = await self._files_in(place, tree)
        shorter = encode_json(tree)
        if refs and len(shorter) <= self._limit:
            return shorter.decode(), refs
        ref = await self._put(place, [_utf8(text)], mime_type or "application/json", filename)
        refs.append(ref)
        shown = encode_json(await in_thread(clamp, cast("JSONValue", tree), self._preview_bytes())).decode()
        if self._rewriter.json_previews:
            return shown, refs
        return _preview(shown, _shape(tree), ref), refs

    def _preview_bytes(self) -> int:
        return max(MIN_BYTES, min(_PREVIEW_BYTES, self._limit))

    async def _files_in(self, place: str, tree: object) -> tuple[object, list[ArtifactRef]]:
        """Store the files in a tree of JSON, and return it with references in their places."""
        try:
            files = await in_thread(self._find_files, tree)
        except ProtocolError:  # nested too deeply
            return tree, []
        refs: dict[Place, ArtifactRef] = {}
        for path, binary in files.items():
            if any(path[:depth] in refs for depth in range(len(path))):
                continue
            try:
                refs[path] = await self._put_file(".".join(filter(None, (place, field_of(path)))), binary)
            except BadEncoding as error:
                self._warn(field_of(path), error)
        return replace(tree, {path: _named([ref]) for path, ref in refs.items()}), [*refs.values()]

    def _find_files(self, tree: object) -> dict[Place, BinaryData]:
        policy = self._rewriter.policy
        files = {match.place: match.binary for match in match_fields(tree, policy.rules(self._caller.name))}
        for content in find(tree, heuristics=policy.search):
            if isinstance(content.binary, BinaryData) and isinstance(content.binary.content, bytes | Encoded):
                files.setdefault(content.path, content.binary)
        return dict(islice(files.items(), _MAX_FILES))

    def _recognised(self, text: str) -> BinaryData | None:
        search = self._rewriter.policy.search
        if search is None:
            return None
        return search.recognise(text)

    # --- structured content -------------------------------------------------------------------------------------------

    async def structured(self, content: msgspec.Raw) -> tuple[msgspec.Raw, list[object]]:
        """Return structured content with short texts in the place of files and long texts, as far as the tool's schema
        allows, and links. If it is still too large, its lists are cut, and the whole is stored."""
        try:
            tree = await in_thread(decode_json, bytes(content))
            tree, refs = await self._without_texts(tree)
            smaller = encode_json(tree)
            if len(smaller) > self._limit and not await in_thread(_long_texts, tree, self._limit):
                smaller, whole = await self._cut(tree, content)
                refs += whole
            return msgspec.Raw(smaller), self._links(refs, {})
        except (ABPError, ValueError) as error:
            self._warn("structuredContent", error)
            return content, []

    async def _without_texts(self, tree: object) -> tuple[object, list[ArtifactRef]]:
        """Store the long texts of structured content, and return it with short texts that name their links."""
        places = (await in_thread(_long_texts, tree, self._limit))[:_MAX_FILES]
        refs: list[ArtifactRef] = []
        shorter = replace(tree, dict.fromkeys(places, _PLACEHOLDER))
        for path in places:
            place = f"structuredContent.{field_of(path)}"
            text, beside = _text_at(tree, path)
            if not await in_thread(self._fits, shorter, path):
                self._warnings.append(
                    f"{place} stays as it is, {_byte_size(text):,} bytes: outputSchema allows no link"
                )
                shorter = replace(shorter, {path: text})
                continue
            name = path[-1] if path else ""
            ref = await self._file_or_text(place, text, name, beside)
            shorter = replace(shorter, {path: _named([ref])})
            refs.append(ref)
        return shorter, refs

    async def _file_or_text(self, place: str, text: str, name: str | int, beside: Mapping[str, object]) -> ArtifactRef:
        """Store a long text of structured content: a file if the fields beside it or its signature say so."""
        mime_type = _text_of(beside.get("mimeType"))
        filename = _text_of(beside.get("filename")) or _text_of(beside.get("name"))
        if mime_type is not None and name in ("blob", "data"):
            try:
                return await self._put_file(place, BinaryData(block_content(text), mime_type, None, filename))
            except BadEncoding:
                pass
        file = await in_thread(self._recognised, text)
        if file is not None:
            return await self._put(place, file.chunks(), mime_type or file.mime_type, filename or file.filename)
        tree = await in_thread(_json_of, text)
        kind = "text/plain" if tree is None else "application/json"
        return await self._put(place, [_utf8(text)], kind, filename)

    async def _cut(self, tree: object, content: msgspec.Raw) -> tuple[bytes, list[ArtifactRef]]:
        """Return structured content of many values cut to a preview, and the artifact of the whole."""
        limit, schema = self._preview_bytes(), self._caller.output_schema
        if schema is None:
            shown: object = await in_thread(clamp, cast("JSONValue", tree), limit)
        else:
            shown = await in_thread(_with_short_lists, tree, limit)
        encoded = encode_json(shown)
        if len(encoded) > self._limit or not await in_thread(self._fits, shown, ()):
            self._warnings.append(
                f"structuredContent stays as it is, {len(content):,} bytes: outputSchema allows nothing shorter"
            )
            return encode_json(tree), []
        return encoded, [await self._put("structuredContent", [bytes(content)], "application/json", None)]

    def _fits(self, tree: object, path: Place) -> bool:
        schema = self._caller.output_schema
        return schema is None or fits_at(schema, tree, path)

    # --- storing ------------------------------------------------------------------------------------------------------

    def _facts(self, ref: ArtifactRef) -> dict[str, object]:
        return {"uri": ref.uri, "mimeType": ref.mime_type, "size": ref.size_bytes, "sha256": ref.sha256}

    def _warn(self, place: str, error: Exception) -> None:
        reason = error.message if isinstance(error, ABPError) else str(error)
        self._warnings.append(f"{place}: {reason[:300]}")

    async def _put_file(self, place: str, binary: BinaryData) -> ArtifactRef:
        return await self._put(place, binary.chunks(), binary.mime_type, binary.filename)

    async def _put(
        self, place: str, chunks: Iterable[bytes], mime_type: str | None, filename: str | None
    ) -> ArtifactRef:
        async with self._rewriter.store.stage() as staged:
            pieces = iter(chunks)
            while (chunk := await in_thread(next, pieces, None)) is not None:
                await staged.write(chunk)
            ref = await staged.commit(
                mime_type=mime_type,
                filename=filename,
                namespace=self._caller.name or None,
                meta={"capability": self._caller.name},
                durability="process",
            )
        if not ref.stored:
            raise StoreError("there is no artifact store")
        self._refs[place] = ref
        return ref


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(encode_json(value))


def _named(refs: Sequence[ArtifactRef]) -> str:
    return ", ".join(f"{ref.uri} ({ref.mime_type}, {ref.size_bytes:,} bytes)" for ref in refs)


def _preview(beginning: str, shape: str, ref: ArtifactRef) -> str:
    return f"{beginning}\n… ({shape}; the whole is {_named([ref])})"


def _is_text(block: msgspec.Raw) -> bool:
    """Return whether a model reads a block as text: not an image, a sound or a link."""
    try:
        return _KIND.decode(block).type in ("text", "resource")
    except (ValueError, RecursionError):
        return False


def _is_view(resource: Mapping[str, object]) -> bool:
    """Return whether a resource is a view of MCP Apps, which hosts read for their users and not for a model."""
    uri, mime_type = resource.get("uri"), resource.get("mimeType")
    has_scheme = isinstance(uri, str) and uri.startswith("ui:")
    return has_scheme or (isinstance(mime_type, str) and "mcp-app" in mime_type)


def _text_of(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _object_of(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _byte_size(text: str) -> int:
    return len(text) if text.isascii() else len(_utf8(text))


def _json_of(text: str) -> object:
    """Return an object or a list that a text is as JSON, or ``None``."""
    if text[:100].lstrip()[:1] not in ("{", "["):
        return None
    try:
        return decode_json(text)
    except ProtocolError:
        return None


def _shape(tree: object) -> str:
    """Return the shape of JSON in words: its keys, or the number of its items and the keys of the first."""
    if isinstance(tree, dict):
        return f"an object with {_keys(tree)}"
    assert isinstance(tree, list)
    shape = f"a list of {len(tree):,} items"
    if tree and isinstance(tree[0], dict):
        shape += f", each with {_keys(tree[0])}"
    return shape


def _keys(fields: Mapping[str, object]) -> str:
    names = ", ".join(str(name)[:40] for name in islice(fields, 20))
    if len(fields) > 20:
        names += f" and {len(fields) - 20:,} more keys"
    return names


def _long_texts(tree: object, limit: int) -> list[Place]:
    """Return the places of the texts of more than ``limit`` bytes."""
    places: list[Place] = []
    waiting: list[tuple[Place, object]] = [((), tree)]
    while waiting:
        place, node = waiting.pop()
        if isinstance(node, str):
            if _byte_size(node) > limit:
                places.append(place)
        elif isinstance(node, dict):
            waiting += [((*place, key), value) for key, value in node.items()]
        elif isinstance(node, list):
            waiting += [((*place, index), value) for index, value in enumerate(node)]
    return places


def _text_at(tree: object, path: Place) -> tuple[str, Mapping[str, object]]:
    node: Any = tree
    beside: object = {}
    for step in path:
        beside = node
        node = node[step]
    return str(node), _object_of(beside)


def _with_short_lists(tree: object, limit: int) -> object:
    """Return a tree whose lists have so few items that it has ``limit`` bytes, or one item each."""
    items = 64
    while True:
        shorter = _first_items(tree, items)
        if items == 1 or len(encode_json(shorter)) <= limit:
            return shorter
        items //= 2


def _first_items(node: object, items: int) -> object:
    if isinstance(node, dict):
        return {key: _first_items(value, items) for key, value in node.items()}
    if isinstance(node, list):
        return [_first_items(value, items) for value in node[:items]]
    return node
