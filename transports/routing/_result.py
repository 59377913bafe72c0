"""Result of a call: the answer with references in the place of files, and its views for agents and people."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace as replace_fields
from typing import TYPE_CHECKING, NamedTuple, cast

import msgspec

from .._internal import notebook
from .._internal.arguments import validate_arguments
from ..artifacts._ref import ArtifactRef, files_table, shown_picture
from ..artifacts._tables import is_table, read_table
from ..errors import UsageError
from ..protocol._find_content import Place, field_of, find_field, replace_values
from ..protocol._media import is_binary_mime, normalise_mime, sniff
from ..protocol._plain_text import first_names
from ..protocol._strict_json import JSONValue, encode_json
from ..protocol.messages import Effect
from ._guard import MIN_AGENT_BYTES, clamp, cut_texts, json_size
from ._policy import AgentLimits, ObservationClamped, OnRoutingEvent, Step

if TYPE_CHECKING:
    import pyarrow

logger = logging.getLogger("transports")


def is_long(text: str, limit: int | None) -> bool:
    return limit is not None and len(text) > limit


class LongText(NamedTuple):
    """A text of an answer that gets a file of its own."""

    place: Place
    text: str
    mime_type: str


def long_texts(data: object, limit: int) -> list[LongText]:
    """Find the long texts inside an answer. An answer that is itself a text is stored as JSON anyway."""
    texts: list[LongText] = []
    _collect_long_texts(data, (), limit, texts)
    return texts


def _collect_long_texts(node: object, place: Place, limit: int, texts: list[LongText]) -> None:
    """Add long texts to ``texts``. A ``mimeType`` beside a text declares its type."""
    declared_type = None
    items: Iterable[tuple[str | int, object]] = ()
    if isinstance(node, dict):
        declared_type = node.get("mimeType")
        items = ((str(name), value) for name, value in node.items())
    elif isinstance(node, list | tuple):
        items = enumerate(node)

    for step, value in items:
        if type(value) is str:
            if len(value) > limit:
                texts.append(LongText((*place, step), value, _text_type(value, declared_type)))
        elif isinstance(value, dict | list | tuple):
            _collect_long_texts(value, (*place, step), limit, texts)


def _text_type(text: str, declared: object) -> str:
    """Return the type of a text: the declared type if it is a type of text, else markup or plain text."""
    declared_type = normalise_mime(declared) if isinstance(declared, str) else None
    if declared_type is not None and not is_binary_mime(declared_type):
        return declared_type

    markup_type = sniff(text[:1024].encode(errors="replace"))
    if markup_type in ("text/html", "image/svg+xml", "application/xml"):
        return markup_type
    return "text/plain"


def preview(text: str, ref: ArtifactRef) -> JSONValue:
    """Describe a long text for agents, who see this in its place (docs/requirements.md R2-3.1)."""
    stored = "stored" if ref.stored else "not stored: no artifact store"
    reference = ref.as_dict()
    names = ("id", "uri", "path", "mime_type", "size_bytes", "truncated", "warning", "source")
    return {
        "artifact": cast(JSONValue, {name: reference[name] for name in names if name in reference}),
        "summary": f"Large text {stored} ({len(text):,} characters)",
        "preview": shorten(text, stored=ref.stored),
    }


def shorten(text: str, *, stored: bool = True) -> str:
    """Cut a text to the length of a preview (docs/requirements.md R2-7.4), longer if the text is not ``stored``."""
    max_chars = 200 if stored else 500
    if len(text) <= max_chars:
        return text
    return text[:max_chars] + "…"


#: Text for a success without data, which is answered inline (docs/requirements.md R0-4b).
_NO_DATA = "The app answered without data."
#: Characters of an answer that a summary shows instead of its size.
MAX_ANSWER_CHARS = 4000


# Making a frozen dataclass of 15 fields takes 2 µs of a small call; users need its replace(), comparison and pickling.
@dataclass(frozen=True, slots=True)
class Result:
    """Routed answer of a call.

    ``data`` is the answer as JSON values, each file replaced by its reference as a ``dict``. If the file is text that
    the app declared, the reference has the text as ``text``, cut beyond 50,000 bytes as JSON.

    ``artifacts`` maps places in ``data`` (``document``, ``pages.0.image``, ``""`` for the whole) to references. It is
    empty only for a success without data: any other answer without files is stored as JSON under ``""``
    (docs/protocol.md 12.1), and so is a large answer. A long text stays in ``data``, and is also a file under its
    place. Files that the app produced beside its answer, such as a printed page or a download, are under ``captured.0``
    and so on, the first under ``document`` if the answer has no file.

    ``duration_ms`` is the time from the start of the call until everything was stored. ``warnings`` are for people.
    ``effects`` lists side effects of the call, ``steps`` the actions of each routing layer.
    """

    capability: str
    data: JSONValue
    artifacts: Mapping[str, ArtifactRef]
    transport: str = ""
    duration_ms: float = 0.0
    warnings: tuple[str, ...] = ()
    effects: tuple[Effect, ...] = ()
    #: Fields of ``data`` beside its files: the metadata of the answer.
    metadata: Mapping[str, object] = field(default_factory=dict, repr=False)
    steps: tuple[Step, ...] = ()
    #: One line for each file of a configured field, by the template of its rule.
    summaries: tuple[str, ...] = ()
    #: Previews that agents see in the place of long texts, by their place in ``data``.
    previews: Mapping[Place, JSONValue] = field(default_factory=dict, repr=False)
    #: Limits of :meth:`for_agent`, from the policy.
    limits: AgentLimits = field(default_factory=AgentLimits, repr=False)
    #: Keys of ``artifacts`` whose references stand in ``data``.
    inline_fields: frozenset[str] = field(default=frozenset(), repr=False)
    #: False after :meth:`by_reference`: surfaces then show no content of files either.
    inline_data: bool = field(default=True, repr=False)
    #: Number of characters of the answer as JSON, if ``data`` is the reference of its file (:meth:`by_reference`).
    answer_chars: int | None = field(default=None, repr=False)
    #: Evidence of the call by kind: ``trace``, ``video``, ``har``, ``console``, ``screenshot``.
    evidence: Mapping[str, ArtifactRef] = field(default_factory=dict, repr=False)
    #: What the app's answer says of itself: ``duration`` in milliseconds, and whether it was ``cached``.
    response_metadata: Mapping[str, float | bool] = field(default_factory=dict, repr=False)
    #: The id of the call; ``""`` outside a session.
    call: str = field(default="", repr=False)
    #: Callback for a cut of an agent's view, in the thread that reads the view. It is not pickled.
    on_clamped: OnRoutingEvent | None = field(default=None, repr=False, compare=False)

    def __repr__(self) -> str:
        places = [*self.artifacts]
        parts = _number_and_noun(len(places), "artifact")
        if places:
            names = [repr(place[:40]) for place in places[:5]]
            if len(places) > 5:
                names.append("…")
            parts += f" ({', '.join(names)})"
        if self.warnings:
            parts += f", {_number_and_noun(len(self.warnings), 'warning')}"
        return f"<Result of {self.capability[:80]}: {parts}>"

    def _repr_html_(self) -> str:
        return self._repr_mimebundle_()["text/html"]

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return the result for a notebook, by MIME type. ``include`` and ``exclude`` of IPython may be ignored."""
        files = [(place or "(the answer)", ref) for place, ref in self.artifacts.items()]
        files += [(f"evidence: {kind}", ref) for kind, ref in self.evidence.items()]
        picture = shown_picture(ref for _, ref in files)

        parts = [files_table(files, self.capability)]
        if picture is not None:
            parts.append(picture.html(f"picture of {self.capability}"))
        else:
            data = cut_texts(self.data, notebook.MAX_CELL, "…")
            if json_size(data) > notebook.MAX_TEXT:
                data = clamp(data, notebook.MAX_TEXT, suffix="…")
            parts.append(notebook.preformatted(msgspec.json.format(encode_json(data), indent=2).decode()))
        parts += [notebook.preformatted(f"Warning: {warning}") for warning in self.warnings[:10]]

        bundle = {"text/plain": repr(self), "text/html": "".join(parts)}
        if picture is not None:
            bundle[picture.mime_type] = picture.content
        return bundle

    @validate_arguments
    def artifact(self, place: str | None = None) -> ArtifactRef:
        """Return the reference at ``place``, or the only one.

        Without ``place``, additional files of the router do not count: a long text's own file, and the answer as JSON
        if the app answered a file. So a program gets the same file however large the rest of the answer is.

        Raises :class:`~transports.errors.UsageError`, which names the places, if there is no file at ``place``, or not
        exactly one file.
        """
        __tracebackhide__ = True
        if place is not None:
            if place in self.artifacts:
                return self.artifacts[place]
            raise self._no_artifact(f"no artifact at {place!r}")

        files = self._file_places()
        if len(files) == 1:
            return self.artifacts[files[0]]
        reason = "the answer has none"
        if files:
            reason = f"there are {len(files)} artifacts; name one by its place"
        raise self._no_artifact(reason)

    def table(self, place: str | None = None) -> pyarrow.Table:
        """Return the rows of a CSV, TSV, JSON, JSON Lines or Parquet file of the answer, as a table of pyarrow.

        Of several files without ``place``, it is the only one of these types. The file is read from the local store
        and verified; it blocks. JSON is an array of objects, or one object, which is one row; a field that a row does
        not have is null there. Needs the extra ``data``.

        Raises :class:`~transports.errors.NotATable` if the file is of another type or its content cannot be read as
        its type, :class:`~transports.errors.TooLarge` for more than 10,000 columns, 4 GiB, or 536,870,912 cells,
        :class:`~transports.errors.UsageError` if there is no such file, not exactly one, no local file or no pyarrow,
        and :class:`~transports.errors.Corrupt` and :class:`~transports.errors.StoreError` as :meth:`.ArtifactRef.open`.
        """
        __tracebackhide__ = True
        if place is None:
            tables = [name for name in self._file_places() if is_table(self.artifacts[name])]
            if len(tables) == 1:
                place = tables[0]
        return read_table(self.artifact(place))

    def _file_places(self) -> list[str]:
        """Return the places of the app's files or, if it answered none, the place of the answer as JSON."""
        if self.answer_chars is not None:
            return [""]
        places = [*answered_files(self)]
        if not places and "" in self.artifacts:
            return [""]
        return places

    def _no_artifact(self, reason: str) -> UsageError:
        places = [*self.artifacts]
        names = first_names([*map(repr, places)], max_names=20) or "none"
        return UsageError(f"{self.capability}: {reason}; places with an artifact: {names}", details={"places": places})

    def by_reference(self) -> Result:
        """Return the result with its data in files alone (docs/requirements.md R0-2).

        ``data`` of an answer without files becomes the reference of its file, and no text is beside the reference of a
        file that an app declared. Data beside files stays, as it is their metadata, and so does an answer that was not
        stored.
        """
        if not self.inline_data:
            return self

        ref = self.artifacts.get("")
        added_by_router = {"", *map(field_of, self.previews)}
        has_files = bool(self.inline_fields) or not self.artifacts.keys() <= added_by_router
        if ref is not None and ref.stored and not has_files:
            return replace_fields(
                self,
                data=cast(JSONValue, ref.as_dict()),
                inline_fields=frozenset({""}),
                previews={},
                metadata={},
                inline_data=False,
                answer_chars=len(encode_json(self.data).decode()),
            )

        result = self.without_keys({"text"})
        # A text that is removed from beside its reference has no preview either.
        places_with_text = {place for place, reference in self._references() if "text" in reference}
        previews = {place: shown for place, shown in self.previews.items() if place[:-1] not in places_with_text}
        return replace_fields(result, previews=previews, inline_data=False)

    def without_keys(self, keys: Collection[str]) -> Result:
        """Return the result without these keys of the references in ``data``.

        A reference to a file that was not stored keeps all but ``text``, since it has nothing else.
        """
        shorter: dict[Place, object] = {}
        for place, reference in self._references():
            removed_keys = set(keys)
            if reference.get("uri") is None:
                removed_keys &= {"text"}
            shorter[place] = {key: value for key, value in reference.items() if key not in removed_keys}
        return replace_fields(self, data=cast(JSONValue, replace_values(self.data, shorter)))

    def _references(self) -> Iterator[tuple[Place, dict[str, JSONValue]]]:
        for name in self.inline_fields:
            match find_field(self.data, name):
                case place, dict() as reference:
                    yield place, reference

    def as_dict(self) -> dict[str, object]:
        """Return the result as JSON: the document that ``abp call --json`` prints."""
        document: dict[str, object] = {
            "success": True,
            "capability": self.capability,
            "transport": self.transport,
            "data": self.data,
            "duration_ms": round(self.duration_ms, 1),
            "warnings": list(self.warnings),
            "artifacts": [{"field": place, **ref.as_dict()} for place, ref in self.artifacts.items()],
        }
        if self.response_metadata:
            document["response_metadata"] = dict(self.response_metadata)
        if self.effects:
            document["effects"] = [effect.as_dict() for effect in self.effects]
        if self.evidence:
            document["evidence"] = [{"kind": kind, **ref.as_dict()} for kind, ref in self.evidence.items()]
        return document

    @validate_arguments
    def for_agent(self, *, max_bytes: int | None = None) -> dict[str, JSONValue]:
        """Return the result for a model: JSON of at most ``max_bytes`` as compact UTF-8 (docs/requirements.md R2-4.4).

        The default of ``max_bytes``, and the limit for a single text, are those of :attr:`limits`. The JSON has
        ``data`` with a preview in the place of each long text, ``artifacts`` whose references are not in ``data``,
        ``warnings`` and ``effects`` if there are any, and a ``note`` if the app answered without data. If it is too
        large, values are cut (:mod:`._guard`), and ``truncated`` has the size of the answer and the place of the whole.

        A cut is logged as a warning, and :class:`~transports.ObservationClamped` is sent (docs/requirements.md R2-4.4).

        Raises :class:`~transports.errors.UsageError` for a limit below 1,024 bytes.
        """
        limits = self.limits
        max_bytes = limits.max_bytes if max_bytes is None else max_bytes
        if max_bytes < MIN_AGENT_BYTES:
            raise UsageError(f"max_bytes must be at least {MIN_AGENT_BYTES} (it is {max_bytes})")

        whole = self._uncut_agent_view()
        body = whole
        if limits.max_field_chars is not None:
            body = cast(dict[str, JSONValue], cut_texts(whole, limits.max_field_chars, limits.truncation_suffix))
        if body is whole and json_size(body) <= max_bytes:  # no text was cut
            return body

        head: dict[str, JSONValue] = {"truncated": self._truncation(max_bytes // 2)}
        if not limits.preserve_structure and not isinstance(body["data"], str):
            body = {**body, "data": encode_json(body["data"]).decode()}
        # Joining two objects replaces two braces by a comma.
        room = max_bytes - json_size(head) + 1
        cut = clamp(body, room, suffix=limits.truncation_suffix)
        view = {**head, **cast(dict[str, JSONValue], cut)}
        self.report_clamped(json_size(whole), json_size(view))
        return view

    def report_clamped(self, original_bytes: int, clamped_bytes: int) -> None:
        """Log that an agent's view of this result was cut, and send :class:`~transports.ObservationClamped`.

        For surfaces that cut further than :meth:`for_agent` and :meth:`summary`, which report their own cuts.
        """
        logger.warning(
            "%s: the answer was cut for an agent from %d to %d bytes",
            self.capability,
            original_bytes,
            clamped_bytes,
        )
        if self.on_clamped is not None:
            self.on_clamped(ObservationClamped(self.call, self.capability, original_bytes, clamped_bytes))

    def __getstate__(self) -> list[object]:
        """Leave out the callback, which may not be pickled."""
        return [None if item.name == "on_clamped" else getattr(self, item.name) for item in fields(self)]

    def _uncut_agent_view(self) -> dict[str, JSONValue]:
        view: dict[str, object] = {"data": replace_values(self.data, self.previews)}
        if self._has_no_data():
            view["note"] = _NO_DATA

        shown_fields = self.inline_fields | {field_of(place) for place in self.previews}
        other_files = {place: ref.as_dict() for place, ref in self.artifacts.items() if place not in shown_fields}
        if other_files:
            view["artifacts"] = other_files

        if self.warnings:
            view["warnings"] = list(self.warnings)
        if self.response_metadata:
            view["response_metadata"] = dict(self.response_metadata)
        if self.effects:
            view["effects"] = [effect.as_dict() for effect in self.effects]
        return cast(dict[str, JSONValue], view)

    def _has_no_data(self) -> bool:
        return self.data is None and not self.artifacts

    def _truncation(self, room: int) -> JSONValue:
        """Return a note on the cut and on the file of the whole answer. A path longer than ``room`` is left out."""
        about: dict[str, JSONValue] = {"bytes": json_size(self.data)}
        ref = None
        if "" not in self.inline_fields:
            ref = self.artifacts.get("")
        if ref is None or not ref.stored:
            return about | {"note": "values were cut; the whole answer was not stored: ask for a part of it"}

        about |= {"note": "values were cut; the whole answer is in this file", "id": ref.id, "uri": ref.uri}
        with_path = about | {"path": ref.local_path}
        if json_size(with_path) <= room:
            return with_path
        return about

    def small_answer(self, *, max_chars: int = MAX_ANSWER_CHARS) -> str | None:
        """Return an answer without files as one line of JSON, or ``None`` for more than ``max_chars`` characters."""
        has_only_its_json = [*self.artifacts] == [""] and not self.inline_fields
        # A character has at most 4 bytes, so a larger file need not be encoded again.
        if not has_only_its_json or self.artifacts[""].size_bytes > 4 * max_chars:
            return None
        text = msgspec.json.format(encode_json(self.data), indent=0).decode()
        if len(text) > max_chars:
            return None
        return text

    @validate_arguments
    def summary(self, *, max_chars: int = 1000, with_answer: bool = True) -> str:
        """Return the result as lines for a person or a model, as docs/protocol.md 12.4 words them.

        They have at most ``max_chars`` characters. A file that was not stored is marked as such; a text that was not
        stored has a preview of 500 characters. The first line of an answer without files is its JSON, if that has at
        most half of ``max_chars`` and 4,000 characters; ``with_answer=False`` leaves that line out, for a caller that
        shows the answer in another way.
        """
        answer = self.small_answer(max_chars=min(max_chars // 2, MAX_ANSWER_CHARS))
        text = "\n".join(self._summary_lines(answer, with_answer=with_answer))
        if len(text) <= max_chars:
            return text
        cut_text = text[: max_chars - 1] + "…"
        self.report_clamped(len(text.encode(errors="replace")), len(cut_text.encode(errors="replace")))
        return cut_text

    def _summary_lines(self, answer: str | None, *, with_answer: bool) -> list[str]:
        """Return the lines of a summary; ``answer`` is the data as JSON if it is small."""
        lines = [_NO_DATA] if self._has_no_data() else list(self.summaries)
        if answer is not None and with_answer:
            lines.append(answer)
        for place, ref in self.artifacts.items():
            if self._is_answer_file(place):
                lines += self._answer_file_lines(ref, is_shown=answer is not None)
            else:
                lines += _file_lines(ref)
        if self.metadata:
            lines.append(f"Metadata: {encode_json(self.metadata).decode()}")

        # Effects of these kinds made files, which have lines already, or a warning why a file is missing.
        file_effects = ("clipboard", "download", "print", "share")
        lines += [f"Effect: {_format_effect(effect)}" for effect in self.effects if effect.kind not in file_effects]
        lines += [f"Warning: {warning}" for warning in self.warnings]
        return lines

    def _is_answer_file(self, place: str) -> bool:
        """Return whether the file at ``place`` is the whole answer as JSON, not a file that the app answered."""
        if place != "":
            return False
        is_referenced_in_data = place in self.inline_fields
        # After by_reference(), the data is the reference of the answer's own JSON.
        return not is_referenced_in_data or self.answer_chars is not None

    def _answer_file_lines(self, ref: ArtifactRef, *, is_shown: bool) -> list[str]:
        lines = [f"Output saved to file: {ref.path or ref.uri}"]
        if not ref.stored:
            lines = ["Output not stored: no artifact store is configured"]
        if is_shown:
            return lines

        if self.answer_chars is not None:
            return [*lines, f"Size: {self.answer_chars} characters"]
        text = encode_json(self.data).decode()
        lines.append(f"Size: {len(text)} characters")
        if not ref.stored:
            lines.append(f"Preview: {shorten(text, stored=False)}")
        return lines


def _file_lines(ref: ArtifactRef) -> list[str]:
    text = str(ref.source.get("preview", ""))
    line = f"File saved: {ref.path or ref.uri}"
    if not ref.stored:
        kind = "Text" if text else "Binary content"
        line = f"{kind} not stored: {ref.filename}"
    lines = [line, f"Type: {ref.mime_type}", f"Size: {ref.size_bytes} bytes"]
    if text and not ref.stored:
        lines.append(f"Preview: {shorten(text, stored=False)}")
    return lines


def _number_and_noun(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def answered_files(result: Result) -> dict[str, ArtifactRef]:
    """Return the artifacts of a result without the files that the router added: long texts, and the answer as JSON."""
    added_by_router = {"", *map(field_of, result.previews)} - result.inline_fields
    return {place: ref for place, ref in result.artifacts.items() if place not in added_by_router}


def _format_effect(effect: Effect) -> str:
    details = ", ".join(f"{key} {value}" for key, value in effect.detail.items())
    details = details.replace("\n", " ")
    if not details:
        return effect.kind
    if len(details) > 80:
        details = details[:79] + "…"
    return f"{effect.kind} ({details})"
