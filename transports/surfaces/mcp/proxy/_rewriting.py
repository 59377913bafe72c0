"""Large content of results, stored and replaced by links; everything small keeps its bytes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias, cast

import msgspec

from ...._internal.tasks import in_thread
from ....artifacts._base import ArtifactStore
from ....artifacts._ref import ArtifactRef
from ....errors import ABPError, BadEncoding, ProtocolError, StoreError
from ....protocol._find_content import Place, block_content, field_of, filename_of, find, replace_values
from ....protocol._strict_json import JSONValue, decode_json, encode_json, members_of
from ....protocol.binary import BinaryData, Encoded
from ....protocol.schema import fits_at
from ....routing._guard import MIN_BYTES, clamp
from ....routing._layers import match_fields
from ....routing._policy import ABP, RoutingPolicy
from .._artifacts import ArtifactDescriber
from ._messages import FIELDS_DECODER, LINKS_SINCE, Fields, to_raw

#: Head of the names of the proxy's fields in ``_meta``.
META_PREFIX = "abp-transports/"
#: Maximum number of bytes of a preview.
_PREVIEW_BYTES = 2048
#: Blocks of fewer bytes are not replaced by links, if no block alone but all texts together are over the limit.
_MIN_REPLACED = 1024
#: Maximum number of files of one text or structured content that are replaced.
_MAX_FILES = 100

_ITEMS_DECODER = msgspec.json.Decoder(list[msgspec.Raw])

#: Function that stores the content of an item, given its place and the item, and returns the items that replace it;
#: ``None`` to keep the item.
_Replace: TypeAlias = Callable[[str, dict[str, object]], Awaitable[list[object] | None]]


class _Kind(msgspec.Struct):
    type: str = ""


_KIND_DECODER = msgspec.json.Decoder(_Kind)


@dataclass(slots=True)
class Rewritten:
    """An answer for the client. ``files`` is the number of files that were stored."""

    result: bytes
    files: int


@dataclass(frozen=True, slots=True)
class AnsweredRequest:
    """What is known of the request when its answer comes. ``name`` is the name of the called tool, otherwise the
    method. ``version`` is the protocol version of the client."""

    method: str
    name: str
    output_schema: Mapping[str, object] | None = None
    version: str = ""

    @property
    def has_links(self) -> bool:
        """True if the client knows links to resources as content."""
        return not self.version or self.version >= LINKS_SINCE


@dataclass(frozen=True, slots=True)
class ProxyOptions:
    """How answers are rewritten. ``max_inline`` is the largest value in bytes that stays in an answer. ``policy`` has
    rules for files in undeclared fields. With ``json_previews`` the preview of a long JSON text is JSON, too."""

    max_inline: int = 64 * 1024
    policy: RoutingPolicy = ABP
    json_previews: bool = False


DESCRIBER = ArtifactDescriber()


async def rewrite(
    result: msgspec.Raw, request: AnsweredRequest, store: ArtifactStore, options: ProxyOptions
) -> Rewritten | None:
    """Store the large values of a result, and return the result with links in their place. Return ``None`` if nothing
    is large. Values are measured as they came, base64 as base64. A value that cannot be stored stays as it is, with a
    warning. Raises ``ValueError`` for a result of another form."""
    if len(result) <= options.max_inline:
        return None

    rewriting = _Rewriting(store, options, request)
    fields = FIELDS_DECODER.decode(result)

    if request.method == "resources/read":
        if "contents" in fields:
            fields["contents"] = await rewriting.rewrite_contents(fields["contents"])
    elif request.method == "prompts/get":
        if "messages" in fields:
            fields["messages"] = await rewriting.rewrite_messages(fields["messages"])
    else:
        if "content" in fields:
            fields["content"] = await rewriting.rewrite_blocks(fields["content"])
        structured = fields.get("structuredContent")
        if structured is not None and len(structured) > options.max_inline:
            fields["structuredContent"], links = await rewriting.rewrite_structured(structured)
            blocks = _ITEMS_DECODER.decode(fields.get("content", b"[]"))
            fields["content"] = to_raw([*blocks, *links])

    return rewriting.list_in_meta(fields)


class _Rewriting:
    """Collects the artifacts that were stored for one result, and its warnings."""

    def __init__(self, store: ArtifactStore, options: ProxyOptions, request: AnsweredRequest) -> None:
        self._store = store
        self._options = options
        self._limit = options.max_inline
        self._request = request
        self._refs: dict[str, ArtifactRef] = {}
        #: Ids of the artifacts to which the result has a link.
        self._linked: set[str] = set()
        self._warnings: list[str] = []

    def list_in_meta(self, fields: Fields) -> Rewritten | None:
        """Add the artifacts and warnings to the result's ``_meta``. Return ``None`` without any of these."""
        if not self._refs and not self._warnings:
            return None

        meta = FIELDS_DECODER.decode(fields.get("_meta", b"{}"))
        if self._refs:
            meta[f"{META_PREFIX}artifacts"] = to_raw({place: _artifact_facts(ref) for place, ref in self._refs.items()})
        if self._warnings:
            meta[f"{META_PREFIX}warnings"] = to_raw(self._warnings)
        fields["_meta"] = to_raw(meta)

        artifact_ids = {ref.id for ref in self._refs.values()}
        return Rewritten(encode_json(fields), len(artifact_ids))

    # --- blocks -------------------------------------------------------------------------------------------------------

    async def rewrite_blocks(self, content: msgspec.Raw) -> msgspec.Raw:
        blocks = _ITEMS_DECODER.decode(content)
        large = self._indexes_to_replace(blocks)

        rewritten: list[object] = []
        for index, block in enumerate(blocks):
            if index in large:
                rewritten += await self._replace_or_keep(f"content.{index}", block, self._replace_block)
            else:
                rewritten.append(block)
        return to_raw(rewritten)

    async def rewrite_messages(self, messages: msgspec.Raw) -> msgspec.Raw:
        """Replace large blocks. A message has one block, so it is repeated if its block becomes several."""
        fields_of_messages = [FIELDS_DECODER.decode(message) for message in _ITEMS_DECODER.decode(messages)]
        blocks = [message.get("content", msgspec.Raw(b"null")) for message in fields_of_messages]
        large = self._indexes_to_replace(blocks)

        rewritten: list[object] = []
        for index, message in enumerate(fields_of_messages):
            if index not in large:
                rewritten.append(message)
                continue
            # Each message gets its own link, even to an artifact that an earlier message links to.
            self._linked.clear()
            place = f"messages.{index}.content"
            for block in await self._replace_or_keep(place, blocks[index], self._replace_block):
                rewritten.append({**message, "content": block})
        return to_raw(rewritten)

    def _indexes_to_replace(self, blocks: Sequence[msgspec.Raw]) -> set[int]:
        """Return the indexes of the blocks to replace: all that are over the limit, and then the largest texts, until
        the remaining texts together are within the limit."""
        sizes = [len(block) for block in blocks]
        large = {index for index, size in enumerate(sizes) if size > self._limit}

        texts = [index for index, block in enumerate(blocks) if index not in large and _is_read_as_text(block)]
        remaining_bytes = sum(sizes[index] for index in texts)
        for index in sorted(texts, key=lambda index: sizes[index], reverse=True):
            if remaining_bytes <= self._limit or sizes[index] < _MIN_REPLACED:
                break
            large.add(index)
            remaining_bytes -= sizes[index]
        return large

    async def _replace_or_keep(self, place: str, item: msgspec.Raw, replace_item: _Replace) -> list[object]:
        """Return what replaces an item. If it must stay, or cannot be stored, return the item itself."""
        try:
            value = await in_thread(msgspec.json.decode, item)
            if isinstance(value, dict):
                replacement = await replace_item(place, value)
                if replacement is not None:
                    return replacement
        except (ABPError, ValueError) as error:
            self._warn_of(place, error)
        return [item]

    async def _replace_block(self, place: str, block: dict[str, object]) -> list[object] | None:
        """Store the content of a block, and return the blocks that replace it. Return ``None`` to keep the block."""
        match block:
            case {"type": "text", "text": str(text)}:
                shown_text, refs = await self._store_text(f"{place}.text", text, None, None)
                links = self._links(refs, block)
                if not shown_text:
                    return links
                return [{**block, "text": shown_text}, *links]
            case {"type": "resource", "resource": dict(resource)}:
                return await self._replace_embedded_resource(f"{place}.resource", block, resource)
            case {"data": str(data)} if len(data) > _MIN_REPLACED:
                mime_type = _text_or_none(block.get("mimeType"))
                if mime_type or block.get("type") in ("image", "audio"):
                    ref = await self._store_base64(f"{place}.data", data, mime_type, None)
                    return self._links([ref], block)
        return None

    async def _replace_embedded_resource(
        self, place: str, block: dict[str, object], resource: dict[str, object]
    ) -> list[object] | None:
        """Replace binary content by a link, and a text by a preview with links after it."""
        shown_text, refs = await self._store_resource(place, resource)
        if not refs:
            return None
        if isinstance(resource.get("blob"), str):
            return self._links(refs, block, resource)
        return [{**block, "resource": {**resource, "text": shown_text}}, *self._links(refs, block)]

    def _links(
        self, refs: Sequence[ArtifactRef], block: Mapping[str, object], resource: Mapping[str, object] | None = None
    ) -> list[object]:
        """Return blocks that link the artifacts without a link so far, or texts that name them if the client does not
        know such blocks. Links keep the annotations and the ``_meta`` of the ``block`` that they replace, and the
        ``_meta`` and URI of the ``resource`` in it."""
        unlinked = [ref for ref in refs if ref.id not in self._linked]
        self._linked |= {ref.id for ref in unlinked}
        if not self._request.has_links:
            return [{"type": "text", "text": _describe_refs([ref])} for ref in unlinked]

        inherited_meta = dict(members_of(block.get("_meta")))
        if resource is not None:
            inherited_meta = {**members_of(resource.get("_meta")), **inherited_meta}
            if isinstance(resource.get("uri"), str):
                inherited_meta[f"{META_PREFIX}uri"] = resource["uri"]

        links: list[object] = []
        for ref in unlinked:
            link = {"type": "resource_link", **DESCRIBER.resource(ref)}
            link["_meta"] = {**inherited_meta, **DESCRIBER.meta(ref)}
            if isinstance(block.get("annotations"), dict):
                link["annotations"] = block["annotations"]
            links.append(link)
        return links

    # --- resources ----------------------------------------------------------------------------------------------------

    async def rewrite_contents(self, contents: msgspec.Raw) -> msgspec.Raw:
        """Replace large contents by texts that name the artifacts."""
        rewritten: list[object] = []
        for index, item in enumerate(_ITEMS_DECODER.decode(contents)):
            if len(item) > self._limit:
                rewritten += await self._replace_or_keep(f"contents.{index}", item, self._replace_content)
            else:
                rewritten.append(item)
        return to_raw(rewritten)

    async def _replace_content(self, place: str, item: dict[str, object]) -> list[object] | None:
        """Store the content of a resource, and return the item that replaces it. Return ``None`` to keep it: a view,
        for instance, is read by a host, not by a model."""
        if _is_view(item):
            return None

        shown_text, refs = await self._store_resource(place, item)
        if not refs:
            return None
        item["text"] = shown_text
        if isinstance(item.get("blob"), str):
            del item["blob"]
            item["mimeType"] = "text/plain"

        meta = members_of(item.get("_meta"))
        facts = [_artifact_facts(ref) for ref in refs]
        return [{**item, "_meta": {**meta, f"{META_PREFIX}artifacts": facts}}]

    async def _store_resource(self, place: str, resource: Mapping[str, object]) -> tuple[str, list[ArtifactRef]]:
        """Store the content of a resource. Return the text to show instead, and the artifacts. Without content, both
        are empty."""
        mime_type = _text_or_none(resource.get("mimeType"))
        filename = filename_of(resource.get("uri"))
        shown_text = ""
        match resource:
            case {"blob": str(blob)}:
                refs = [await self._store_base64(f"{place}.blob", blob, mime_type, filename)]
            case {"text": str(text)}:
                shown_text, refs = await self._store_text(f"{place}.text", text, mime_type, filename)
            case _:
                refs = []
        return shown_text or _describe_refs(refs), refs

    # --- values -------------------------------------------------------------------------------------------------------

    async def _store_base64(self, place: str, text: str, mime_type: str | None, filename: str | None) -> ArtifactRef:
        """Store decoded base64. If the base64 is broken, store the text itself, with a warning."""
        try:
            return await self._store_binary(place, BinaryData(block_content(text), mime_type, None, filename))
        except BadEncoding as error:
            self._warn_of(place, error)
            return await self._store_artifact(place, [_utf8(text)], "text/plain", None)

    async def _store_text(
        self, place: str, text: str, mime_type: str | None, filename: str | None
    ) -> tuple[str, list[ArtifactRef]]:
        """Store a long text. Return a preview to show instead, which is empty if the text is an encoded file, and the
        artifacts."""
        file = await in_thread(self._recognise_file, text)
        if file is not None:
            return "", [await self._store_binary(place, file)]

        tree = await in_thread(_parse_json_tree, text)
        if tree is not None:
            return await self._store_json_text(place, text, tree, mime_type, filename)

        ref = await self._store_artifact(place, [_utf8(text)], mime_type or "text/plain", filename)
        lines = text.count("\n") + 1
        shape = f"{len(text):,} characters, {lines:,} lines"
        return _preview_text(text[:_PREVIEW_BYTES], shape, ref), [ref]

    async def _store_json_text(
        self, place: str, text: str, tree: object, mime_type: str | None, filename: str | None
    ) -> tuple[str, list[ArtifactRef]]:
        """Store the files in a JSON text, and if it is still too long then, the text itself. Return the text to show
        instead, and the artifacts."""
        tree_without_files, refs = await self._store_files_in(place, tree)
        shorter = encode_json(tree_without_files)
        if refs and len(shorter) <= self._limit:
            return shorter.decode(), refs

        ref = await self._store_artifact(place, [_utf8(text)], mime_type or "application/json", filename)
        refs.append(ref)
        preview = await in_thread(clamp, cast("JSONValue", tree_without_files), self._preview_bytes())
        shown = encode_json(preview).decode()
        if self._options.json_previews:
            return shown, refs
        return _preview_text(shown, _describe_shape(tree_without_files), ref), refs

    def _preview_bytes(self) -> int:
        return max(MIN_BYTES, min(_PREVIEW_BYTES, self._limit))

    async def _store_files_in(self, place: str, tree: object) -> tuple[object, list[ArtifactRef]]:
        """Store the files in a JSON value. Return the value with references in their place, and the artifacts."""
        try:
            files = await in_thread(self._find_files, tree)
        except ProtocolError:  # nested too deeply
            return tree, []

        refs: dict[Place, ArtifactRef] = {}
        for path, binary in files.items():
            is_inside_stored_file = any(path[:depth] in refs for depth in range(len(path)))
            if is_inside_stored_file:
                continue
            field = field_of(path)
            full_place = f"{place}.{field}" if field else place
            try:
                refs[path] = await self._store_binary(full_place, binary)
            except BadEncoding as error:
                self._warn_of(full_place, error)

        references = {path: _describe_refs([ref]) for path, ref in refs.items()}
        return replace_values(tree, references), [*refs.values()]

    def _find_files(self, tree: object) -> dict[Place, BinaryData]:
        """Return the files in a JSON value by their places: those that the policy declares, and those that look like
        files to it."""
        policy = self._options.policy
        files = {match.place: match.binary for match in match_fields(tree, policy.rules(self._request.name))}
        for content in find(tree, heuristics=policy.search):
            if isinstance(content.binary, BinaryData) and isinstance(content.binary.content, bytes | Encoded):
                files.setdefault(content.path, content.binary)
        return dict(islice(files.items(), _MAX_FILES))

    def _recognise_file(self, text: str) -> BinaryData | None:
        search = self._options.policy.search
        if search is None:
            return None
        return search.recognise(text)

    # --- structured content -------------------------------------------------------------------------------------------

    async def rewrite_structured(self, content: msgspec.Raw) -> tuple[msgspec.Raw, list[object]]:
        """Return the structured content for the client, and the blocks that link what was stored. Long texts become
        references, as far as the tool's schema allows. If the content is still too large because of its many values,
        all of it is stored and a preview returned."""
        try:
            tree = await in_thread(decode_json, bytes(content))
            tree, refs = await self._replace_long_texts(tree)
            encoded = encode_json(tree)
            if len(encoded) > self._limit:
                has_long_texts = await in_thread(_find_long_texts, tree, self._limit)
                if not has_long_texts:
                    encoded, stored_refs = await self._shorten_structured(tree, content)
                    refs += stored_refs
            return msgspec.Raw(encoded), self._links(refs, {})
        except (ABPError, ValueError) as error:
            self._warn_of("structuredContent", error)
            return content, []

    async def _replace_long_texts(self, tree: object) -> tuple[object, list[ArtifactRef]]:
        """Store long texts. Return the content with references in their place, and the artifacts. A text stays if the
        tool's schema allows no reference there."""
        paths = (await in_thread(_find_long_texts, tree, self._limit))[:_MAX_FILES]
        refs: list[ArtifactRef] = []

        # The schema is checked with placeholders first, so that nothing is stored for a text that must stay.
        placeholder = "artifact://tool_0123456789ab (application/octet-stream, 1,000,000 bytes)"
        shorter = replace_values(tree, dict.fromkeys(paths, placeholder))
        for path in paths:
            place = f"structuredContent.{field_of(path)}"
            text, siblings = _text_and_siblings(tree, path)
            if await in_thread(self._fits_schema, shorter, path):
                name = path[-1] if path else ""
                ref = await self._store_field(place, text, name, siblings)
                refs.append(ref)
                shorter = replace_values(shorter, {path: _describe_refs([ref])})
            else:
                size = _byte_size(text)
                self._warnings.append(f"{place} stays as it is, {size:,} bytes: outputSchema allows no link")
                shorter = replace_values(shorter, {path: text})
        return shorter, refs

    async def _store_field(self, place: str, text: str, name: str | int, siblings: Mapping[str, object]) -> ArtifactRef:
        """Store the file in ``text`` if its ``siblings`` or its beginning say that it is one, otherwise the text."""
        mime_type = _text_or_none(siblings.get("mimeType"))
        filename = _text_or_none(siblings.get("filename")) or _text_or_none(siblings.get("name"))

        is_declared_file = mime_type is not None and name in ("blob", "data")
        if is_declared_file:
            try:
                return await self._store_binary(place, BinaryData(block_content(text), mime_type, None, filename))
            except BadEncoding:
                pass  # not base64 after all

        file = await in_thread(self._recognise_file, text)
        if file is not None:
            mime_type = mime_type or file.mime_type
            return await self._store_artifact(place, file.chunks(), mime_type, filename or file.filename)

        tree = await in_thread(_parse_json_tree, text)
        text_type = "text/plain" if tree is None else "application/json"
        return await self._store_artifact(place, [_utf8(text)], text_type, filename)

    async def _shorten_structured(self, tree: object, content: msgspec.Raw) -> tuple[bytes, list[ArtifactRef]]:
        """Store the whole content. Return a preview of it as JSON, and the artifact. If no preview fits the schema,
        return the content and store nothing."""
        limit = self._preview_bytes()
        if self._request.output_schema is None:
            preview: object = await in_thread(clamp, cast("JSONValue", tree), limit)
        else:
            preview = await in_thread(_with_short_lists, tree, limit)

        encoded = encode_json(preview)
        if len(encoded) > self._limit or not await in_thread(self._fits_schema, preview, ()):
            self._warnings.append(
                f"structuredContent stays as it is, {len(content):,} bytes: outputSchema allows nothing shorter"
            )
            return encode_json(tree), []

        ref = await self._store_artifact("structuredContent", [bytes(content)], "application/json", None)
        return encoded, [ref]

    def _fits_schema(self, tree: object, path: Place) -> bool:
        schema = self._request.output_schema
        return schema is None or fits_at(schema, tree, path)

    # --- storing ------------------------------------------------------------------------------------------------------

    def _warn_of(self, place: str, error: Exception) -> None:
        reason = error.message if isinstance(error, ABPError) else str(error)
        self._warnings.append(f"{place}: {reason[:300]}")

    async def _store_binary(self, place: str, binary: BinaryData) -> ArtifactRef:
        return await self._store_artifact(place, binary.chunks(), binary.mime_type, binary.filename)

    async def _store_artifact(
        self, place: str, chunks: Iterable[bytes], mime_type: str | None, filename: str | None
    ) -> ArtifactRef:
        """Store an artifact, which is then listed in the result's ``_meta`` under its ``place``."""
        async with self._store.stage() as staged:
            pieces = iter(chunks)
            while (chunk := await in_thread(next, pieces, None)) is not None:
                await staged.write(chunk)
            ref = await staged.commit(
                mime_type=mime_type,
                filename=filename,
                namespace=self._request.name or None,
                meta={"capability": self._request.name},
                durability="process",
            )

        if not ref.stored:
            raise StoreError("no artifact store")
        self._refs[place] = ref
        return ref


def _artifact_facts(ref: ArtifactRef) -> dict[str, object]:
    return {"uri": ref.uri, "mimeType": ref.mime_type, "size": ref.size_bytes, "sha256": ref.sha256}


def _describe_refs(refs: Sequence[ArtifactRef]) -> str:
    return ", ".join(f"{ref.uri} ({ref.mime_type}, {ref.size_bytes:,} bytes)" for ref in refs)


def _preview_text(beginning: str, shape: str, ref: ArtifactRef) -> str:
    return f"{beginning}\n… ({shape}; the whole is {_describe_refs([ref])})"


def _is_read_as_text(block: msgspec.Raw) -> bool:
    """Return false for an image, a sound or a link."""
    try:
        return _KIND_DECODER.decode(block).type in ("text", "resource")
    except (ValueError, RecursionError):
        return False


def _is_view(resource: Mapping[str, object]) -> bool:
    """Whether it is a view of MCP Apps, which hosts read for their users and not for a model."""
    uri = resource.get("uri")
    mime_type = resource.get("mimeType")
    has_view_address = isinstance(uri, str) and uri.startswith("ui:")
    has_view_type = isinstance(mime_type, str) and "mcp-app" in mime_type
    return has_view_address or has_view_type


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _byte_size(text: str) -> int:
    return len(text) if text.isascii() else len(_utf8(text))


def _parse_json_tree(text: str) -> object:
    """Return the object or list that a text is in JSON, or ``None`` for any other text."""
    beginning = text[:100].lstrip()
    if beginning[:1] not in ("{", "["):
        return None
    try:
        return decode_json(text)
    except ProtocolError:
        return None


def _describe_shape(tree: object) -> str:
    if isinstance(tree, dict):
        return f"an object with {_list_keys(tree)}"
    assert isinstance(tree, list)
    shape = f"a list of {len(tree):,} items"
    if tree and isinstance(tree[0], dict):
        shape += f", each with {_list_keys(tree[0])}"
    return shape


def _list_keys(fields: Mapping[str, object]) -> str:
    names = ", ".join(str(name)[:40] for name in islice(fields, 20))
    if len(fields) > 20:
        names += f" and {len(fields) - 20:,} more keys"
    return names


def _find_long_texts(tree: object, limit: int) -> list[Place]:
    """Return the places of all texts with more than ``limit`` bytes."""
    places: list[Place] = []
    unvisited: list[tuple[Place, object]] = [((), tree)]
    while unvisited:
        place, node = unvisited.pop()
        if isinstance(node, str):
            if _byte_size(node) > limit:
                places.append(place)
        elif isinstance(node, dict):
            unvisited += [((*place, key), value) for key, value in node.items()]
        elif isinstance(node, list):
            unvisited += [((*place, index), value) for index, value in enumerate(node)]
    return places


def _text_and_siblings(tree: object, path: Place) -> tuple[str, Mapping[str, object]]:
    """Return the text at a path, and the fields of the object that holds it. A text in a list has no such fields."""
    node: Any = tree
    parent: object = {}
    for step in path:
        parent = node
        node = node[step]
    return str(node), members_of(parent)


def _with_short_lists(tree: object, limit: int) -> object:
    """Return the value with shortened lists, so that it has at most ``limit`` bytes if possible. Each list keeps at
    least one item."""
    max_items = 64
    shorter = _with_first_items(tree, max_items)
    while max_items > 1 and len(encode_json(shorter)) > limit:
        max_items //= 2
        shorter = _with_first_items(tree, max_items)
    return shorter


def _with_first_items(node: object, max_items: int) -> object:
    if isinstance(node, dict):
        return {key: _with_first_items(value, max_items) for key, value in node.items()}
    if isinstance(node, list):
        return [_with_first_items(value, max_items) for value in node[:max_items]]
    return node
