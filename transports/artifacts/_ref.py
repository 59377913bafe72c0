"""References to artifacts, their scopes, ids and metadata, queries for them, and the reports of checks."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import lru_cache
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec

from .._internal import notebook
from .._internal.arguments import validate_arguments
from ..errors import ArtifactNotFound, Corrupt, UsageError
from ..protocol._media import is_binary_mime
from ..protocol._strict_json import encode_json, items_of, parser_limits
from ..protocol._times import iso_utc
from ._content import Description
from ._verified import ExportFile, export_local_file, open_verified

#: Longest value of a field of a scope, in characters.
MAX_SCOPE_CHARS = 200


@dataclass(frozen=True, slots=True)
class Scope:
    """The owner of an artifact (docs/requirements.md R2-7.2): a tenant, a user, a session, a trace.

    A field that is ``None`` matches any value: ``Scope(session="s")`` covers every trace of that session, and
    ``Scope()`` covers everything, including artifacts without an owner. Each value is 1 to 200 printable characters;
    otherwise raises :class:`~transports.errors.UsageError`.
    """

    tenant: str | None = None
    user: str | None = None
    session: str | None = None
    trace: str | None = None

    def __post_init__(self) -> None:
        for name, value in self.items():
            if not isinstance(value, str) or not 0 < len(value) <= MAX_SCOPE_CHARS or not value.isprintable():
                raise UsageError(f"scope: {name} must be 1 to {MAX_SCOPE_CHARS} printable characters")

    def __bool__(self) -> bool:
        return any((self.tenant, self.user, self.session, self.trace))

    def items(self) -> list[tuple[str, str]]:
        """Return the fields that are set, as pairs of name and value, from tenant to trace."""
        fields = [("tenant", self.tenant), ("user", self.user), ("session", self.session), ("trace", self.trace)]
        return [(name, value) for name, value in fields if value is not None]

    @property
    def holder(self) -> str | None:
        """Name of the owner, as ``users`` in the settings file: the user, or ``tenant:`` and the tenant; ``None`` for
        the operator."""
        if self.tenant and not self.user:
            return f"tenant:{self.tenant}"
        return self.user

    def covers(self, other: Scope) -> bool:
        """Return whether a view with this scope sees an artifact of ``other``."""
        return all(getattr(other, name) == value for name, value in self.items())

    def within(self, inner: Scope) -> Scope:
        """Return ``inner`` narrowed by this scope. Raises :class:`~transports.errors.UsageError` if a field differs."""
        both = Scope(**dict(inner.items()) | dict(self.items()))
        if not inner.covers(both):
            raise UsageError("scope: a view can only be narrowed, not moved to another tenant, user, session or trace")
        return both


@dataclass(frozen=True, slots=True)
class ArtifactRef:
    """A reference to a stored file. It can be given to a model: it holds no content and no credentials.

    ``local_path`` is the artifact's readable file on this machine, or ``None`` if the store has none. It is text:
    making a :class:`~pathlib.Path` takes longer than the rest of a reference, and few references of a long list need
    one; :attr:`path` makes it. ``size_bytes`` and ``sha256`` (in hex) were verified when the artifact was stored.
    ``source`` describes the origin in JSON values: ``capability``, ``app``, ``created`` (ISO 8601, UTC),
    ``declared_mime_type``, ``sniffed_mime_type``, ``verified`` (true if a declared size was compared), ``warnings``,
    ``stored_again`` (the same content was already stored and no new name was suggested, so the older name stays),
    ``requested_names``, ``call``. It comes from ``meta`` of the stores' methods, and is open: a new fact about the
    origin needs no change of a store or an index. A reference of :class:`~transports.NoneStore` has no content; see
    :attr:`stored`.
    """

    id: str
    uri: str
    local_path: str | None
    filename: str
    mime_type: str
    size_bytes: int
    sha256: str
    source: Mapping[str, object] = field(default_factory=dict)
    scope: Scope = Scope()

    def __repr__(self) -> str:
        place = ""
        if self.local_path:
            place = f" at {self.local_path}"
        elif not self.stored:
            place = ", not stored"
        return f"<ArtifactRef {self.filename[:80]!r}, {self.mime_type[:80]}, {self.size_bytes:,} bytes{place}>"

    def _repr_html_(self) -> str:
        return self._repr_mimebundle_()["text/html"]

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        html: str = files_table([("", self)])
        bundle = {"text/plain": repr(self)}

        picture = shown_picture([self])
        if picture:
            html += picture.html(self.filename)
            bundle[picture.mime_type] = picture.content
        elif self.local_path is not None and not is_binary_mime(self.mime_type):
            html += notebook.first_lines(self.local_path)
        return {**bundle, "text/html": html}

    def _html_cells(self) -> tuple[str, str, str]:
        name: str = self.filename
        if self.local_path:
            from ._signing import download_link  # late: it loads itsdangerous

            name = notebook.file_link(self.local_path, self.filename)
            address = download_link(Path(self.local_path), self.id, seconds=3600)
            if address:
                name = notebook.Html(name + notebook.download_link(address))

        size = f"{self.size_bytes:,} bytes"
        if not self.stored:
            size += ", not stored"
        return name, self.mime_type, size

    @property
    def stored(self) -> bool:
        """True if there is content to read; false if the store did not keep it (docs/requirements.md R2-7.4)."""
        return not (self.id.startswith("truncated_") and self.source.get("truncated") is True)

    @property
    def path(self) -> Path | None:
        """Readable file of the artifact on this machine, or ``None`` if the store has none."""
        return None if self.local_path is None else Path(self.local_path)

    def as_dict(self) -> dict[str, object]:
        """Return the reference as JSON values, with ``scope`` if it has one, and without ``source``.

        If the content was not :attr:`stored`, ``uri`` is ``None``, ``truncated`` is ``True``, ``warning`` has the
        reason, both also in ``source`` (docs/requirements.md R2-7.4), and ``preview`` has the first 500 characters of a
        text.
        """
        document: dict[str, object] = {
            "id": self.id,
            "uri": self.uri if self.stored else None,
            "path": self.local_path,
            "filename": self.filename,
            "mime_type": self.mime_type,
            "size_bytes": self.size_bytes,
            "sha256": self.sha256,
        }
        if self.scope:
            document["scope"] = dict(self.scope.items())

        if not self.stored:
            for name in ("truncated", "warning", "preview"):
                if name in self.source:
                    document[name] = self.source[name]
            document["source"] = {name: document[name] for name in ("warning", "truncated") if name in document}
        return document

    @validate_arguments
    def save_as(self, path: str | os.PathLike[str]) -> Path:
        """Copy the local file to ``path``, and return the absolute path. It blocks.

        Missing folders are made and an existing file is replaced. The file appears at once, after its size and SHA-256
        were verified. Raises :class:`~transports.errors.UsageError` if the store has no local file (use
        ``await app.save(ref, path)`` then) or ``path`` is a folder, :class:`~transports.errors.Corrupt` if the content
        has changed, and :class:`~transports.errors.StoreError` if a file cannot be read or written.
        """
        if self.path is None:
            raise UsageError(
                f"artifact {self.id} has no file on this machine; copy it out of its store with "
                "`await app.save(ref, path)` or `await store.export(ref, path)`"
            )
        return export_local_file(self.path, ExportFile(path, self))

    def open(self) -> BufferedReader:
        """Open the local file for reading, as bytes. It blocks.

        The whole content is compared with its hash first, and each piece again when it is read: a program never gets
        bytes that differ from those that were stored. Memory holds a piece of 1 MiB. Seeking is as cheap as in a file.

        Raises :class:`~transports.errors.UsageError` if the store has no local file (the file system ``artifact://``
        reads any store, docs/data.md), :class:`~transports.errors.Corrupt`, also while it is read, and
        :class:`~transports.errors.StoreError` if the file cannot be read.
        """
        if self.path is None:
            raise UsageError(
                f"artifact {self.id} has no file on this machine; read it from its store with "
                f"`await store.get(ref)`, or with `fsspec.open({self.uri!r}, store=store)`"
            )
        return open_verified(self, self.path)


def files_table(files: Collection[tuple[str, ArtifactRef]], title: str = "") -> notebook.Html:
    head = ["file", "type", "size"]
    # Generators, so that cells are made for the shown rows only.
    rows: Iterable[Sequence[str]] = (ref._html_cells() for _, ref in files)
    if any(place for place, _ in files):
        head.insert(0, "place")
        rows = ((place, *ref._html_cells()) for place, ref in files)
    return notebook.table(head, rows, title=title, count=len(files))


def shown_picture(refs: Iterable[ArtifactRef]) -> notebook.Picture | None:
    """Return the first picture of the first 20 files, or else a small one made of the first file that allows it."""
    max_files = 20
    first_refs = list(islice(refs, max_files))
    for ref in first_refs:
        picture = notebook.read_picture(ref.local_path, ref.mime_type, ref.size_bytes, ref.sha256)
        if picture:
            return picture

    for ref in first_refs:
        if notebook.has_thumbnail(ref.local_path, ref.mime_type, ref.size_bytes):
            return notebook.make_thumbnail(ref.local_path, ref.mime_type, ref.sha256)
    return None


def id_of(artifact: ArtifactRef | str) -> str:
    if isinstance(artifact, ArtifactRef):
        return artifact.id
    if isinstance(artifact, str):
        return artifact
    kind = type(artifact).__name__
    raise UsageError(f"an artifact is a reference, such as result.artifact(), or an id, not {kind}")


def described_ref(
    artifact_id: str, description: Description, source: Mapping[str, object], scope: Scope
) -> ArtifactRef:
    return ArtifactRef(
        id=artifact_id,
        uri=f"artifact://{artifact_id}",
        local_path=None,
        filename=description.name,
        mime_type=description.mime_type,
        size_bytes=description.size,
        sha256=description.sha256,
        source={**description.source, **source},
        scope=scope,
    )


class Page(NamedTuple):
    """One page of a query: its artifacts, the newest first, and the cursor of the next page; ``None`` after the last.

    A page may be shorter than the limit although there is a next one: expired artifacts are left out.
    """

    artifacts: Sequence[ArtifactRef]
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Filters of :func:`~transports.artifacts.find`; ``None`` matches every artifact.

    ``capability`` and ``app`` are the origin of the artifact (``ref.source``). ``mime_type`` is a whole type or a
    wildcard such as ``image/*`` (kept as ``image/``). ``since`` (inclusive) and ``until`` (exclusive) are times with a
    time zone, compared with the time at which an artifact was stored first. ``min_bytes`` and ``max_bytes`` are
    inclusive. ``limit`` is 1 to 10,000, or ``None`` for all in one page; ``cursor`` is :attr:`Page.next` of the page
    before.

    Raises :class:`~transports.errors.UsageError` for a time without a zone, a limit out of range, or an invalid cursor.
    """

    capability: str | None = None
    app: str | None = None
    mime_type: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    min_bytes: int | None = None
    max_bytes: int | None = None
    limit: int | None = 50
    cursor: str | None = None

    def __post_init__(self) -> None:
        if self.mime_type == "*/*":
            object.__setattr__(self, "mime_type", None)
        elif self.mime_type is not None and self.mime_type.endswith("/*"):
            object.__setattr__(self, "mime_type", self.mime_type[:-1])

        for moment in (self.since, self.until):
            if moment is not None and moment.tzinfo is None:
                raise UsageError("since and until must have a time zone, as datetime.now(UTC) has")
        if self.limit is not None and not 1 <= self.limit <= 10_000:
            raise UsageError(f"limit must be between 1 and 10,000, not {self.limit}")
        if self.cursor is not None and "~" not in self.cursor:
            raise UsageError("invalid cursor; use `next` of the previous page")

    @property
    def times(self) -> tuple[str | None, str | None]:
        """``since`` and ``until`` in the text form of the times in references."""
        return _iso_text(self.since), _iso_text(self.until)

    @property
    def after(self) -> tuple[str, str] | None:
        """:func:`age_key` of the last artifact of the page before; ``None`` for the first page."""
        if self.cursor is None:
            return None
        created, _, key = self.cursor.rpartition("~")
        return created, key

    def matches(self, ref: ArtifactRef) -> bool:
        """Return whether an artifact passes the filters; the cursor is ignored."""
        created, _ = age_key(ref)
        since, until = self.times
        return (
            self.capability in (None, ref.source.get("capability"))
            and self.app in (None, ref.source.get("app"))
            and self._matches_type(ref.mime_type)
            and (since is None or created >= since)
            and (until is None or created < until)
            and (self.min_bytes is None or ref.size_bytes >= self.min_bytes)
            and (self.max_bytes is None or ref.size_bytes <= self.max_bytes)
        )

    def _matches_type(self, mime_type: str) -> bool:
        if self.mime_type is None:
            return True
        if self.mime_type.endswith("/"):
            return mime_type.startswith(self.mime_type)
        return mime_type == self.mime_type


def age_key(artifact: ArtifactRef | Metadata) -> tuple[str, str]:
    """Return the sort key of stores: the time at which the artifact was stored first, and its id."""
    return str(artifact.source.get("created", "")), artifact.id


def page_of(query: Query, oldest_first: Sequence[ArtifactRef]) -> Page:
    """Return a page of the artifacts that match a query, the newest first."""
    after = query.after
    page: list[ArtifactRef] = []
    for ref in reversed(oldest_first):
        is_on_earlier_page = after is not None and age_key(ref) >= after
        if is_on_earlier_page or not query.matches(ref):
            continue
        if len(page) == query.limit:
            # This artifact is the first of the next page.
            return Page(page, "~".join(age_key(page[-1])))
        page.append(ref)
    return Page(page, None)


def _iso_text(moment: datetime | None) -> str | None:
    return None if moment is None else iso_utc(moment.timestamp())


def scope_condition(scope: Scope) -> tuple[str, list[str]]:
    """Return an SQL condition for the artifacts that ``scope`` covers, and its values. It follows another condition."""
    fields = scope.items()
    # The names are quoted, because "user" is reserved in PostgreSQL.
    condition = "".join(f' AND "{name}" = ?' for name, _ in fields)
    return condition, [value for _, value in fields]


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding of a check.

    ``kind`` is ``content`` (missing or damaged), ``metadata`` (unreadable), ``index`` (a row that differed from the
    metadata; repaired), ``symlink`` (in a folder of the store), ``orphan`` (content without metadata) or ``name`` (a
    readable name without an artifact). ``id`` is an artifact's id or a path below the store.
    """

    kind: str
    id: str
    message: str


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Result of a check: the number and total size of the artifacts that were read, and the problems found."""

    artifacts: int
    size_bytes: int
    problems: tuple[Problem, ...]

    def as_dict(self) -> dict[str, object]:
        """Return the report as JSON values."""
        return asdict(self) | {"problems": [asdict(problem) for problem in self.problems]}


@dataclass(frozen=True, slots=True)
class ReindexReport:
    """Result of comparing an index with its store: the number of artifacts, the ids whose rows were corrected (none for
    a new index), and the ids whose metadata cannot be read."""

    artifacts: int
    corrected: tuple[str, ...]
    unreadable: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        """Return the report as JSON values."""
        return asdict(self)


#: Most bytes of a metadata file that are read; real ones are far smaller.
MAX_METADATA_BYTES = 1 << 20

#: Ids that this library makes; no other id is ever joined to a path.
ID = re.compile(r"[A-Za-z0-9_-]{1,64}_[0-9a-f]{12,64}(?:-[0-9a-f]{20})?")
_NOBODY = Scope()
#: Returns a :class:`Scope`. A store has many artifacts and few scopes.
cached_scope = lru_cache(1000)(Scope)


def artifact_id(namespace: str, digest: str, scope: Scope = _NOBODY) -> str:
    """Return the id of content. The same content in one namespace is one artifact (docs/requirements.md R2-5.3). In a
    scope, 20 more digits follow that depend on the content *and* the scope: the same content of two sessions is two
    artifacts, and the id cannot be guessed from the content alone."""
    return candidate_ids(namespace, digest, scope)[0]


def candidate_ids(namespace: str, digest: str, scope: Scope) -> list[str]:
    """Return possible ids, the shortest first. A longer id is for content whose hash begins like other content's."""
    suffix = ""
    if scope:
        digest_and_scope = json.dumps([digest, scope.items()])
        suffix = f"-{hashlib.sha256(digest_and_scope.encode()).hexdigest()[:20]}"
    lengths = (12, 16, 24, 32, 40, 48, 56, 64)
    return [f"{namespace}_{digest[:length]}{suffix}" for length in lengths]


def digest_prefix(key: str) -> str:
    """Return the digits of the content's SHA-256 in an id, such as those after ``pdf_`` in ``pdf_<digits>-…``."""
    return key.rpartition("_")[2].partition("-")[0]


def not_found(artifact_id: str) -> ArtifactNotFound:
    """Return the error for an id that is unknown, expired or of another scope: a caller must not learn which it is."""
    display_id = artifact_id if len(artifact_id) <= 200 else artifact_id[:200] + "…"
    return ArtifactNotFound(f"no artifact {display_id!r} in this store", details={"id": display_id})


def damaged(ref: ArtifactRef, reason: str) -> Corrupt:
    return Corrupt(
        f"artifact {ref.id} is damaged: {reason}; make the call again, or delete the artifact", details={"id": ref.id}
    )


def damaged_metadata(artifact_id: str, error: ValueError) -> Corrupt:
    return Corrupt(
        f"the metadata of artifact {artifact_id} is damaged ({error}); make the call again, or delete the artifact",
        details={"id": artifact_id},
    )


class OtherCase(FileNotFoundError):
    """Raised if a file has the metadata of an id that differs only in case, on a file system that ignores case."""


class Name(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Readable file of an artifact: its ``name`` in the root, and the ``requested`` name ("" if none)."""

    name: str
    requested: str


class Metadata(msgspec.Struct, frozen=True):
    """The record of an artifact that a store keeps beside the content. The last of ``names`` is the current one.
    ``stored`` is the time of the last storing, in seconds since 1970. ``blob`` is the key of the content, in stores
    that do not derive it from the hash."""

    id: str
    sha256: str
    size_bytes: int
    mime_type: str
    names: tuple[Name, ...]
    source: Mapping[str, object] = msgspec.field(default_factory=dict)
    scope: Scope = _NOBODY
    stored: float = 0.0
    blob: str = ""

    @classmethod
    def new(
        cls,
        key: str,
        description: Description,
        scope: Scope,
        *,
        old: Metadata | None = None,
        names: tuple[Name, ...] = (),
        blob: str = "",
    ) -> Metadata:
        """Make the metadata of content. The time of creation of ``old`` is kept, and so is its name unless another was
        suggested."""
        source = dict(description.source)
        if old and "created" in old.source:
            source["created"] = old.source["created"]

        name = Name(description.name, "")
        if old and not description.suggested:
            source["stored_again"] = True
            name = old.names[-1]
        source |= _requested_names(description, old)
        return cls(
            id=key,
            sha256=description.sha256,
            size_bytes=description.size,
            mime_type=description.mime_type,
            names=names or (name,),
            source=source,
            scope=scope,
            stored=time.time(),
            blob=blob,
        )

    def ref(self, path: Path | None = None) -> ArtifactRef:
        return ArtifactRef(
            id=self.id,
            uri=f"artifact://{self.id}",
            local_path=str(path) if path else None,
            filename=path.name if path else self.names[-1].name,
            mime_type=self.mime_type,
            size_bytes=self.size_bytes,
            sha256=self.sha256,
            source=dict(self.source),
            scope=self.scope,
        )

    def encode(self) -> bytes:
        document = {"version": 1, **msgspec.structs.asdict(self), "scope": dict(self.scope.items())}
        return msgspec.json.format(encode_json(document), indent=1)

    @classmethod
    def decode(cls, data: bytes, artifact_id: str) -> Metadata:
        """Read the metadata of an id. Raises :class:`ValueError`, also for values that :meth:`encode` never writes and
        that break an index or a reader of JSON: numbers out of range, lone surrogates, deep nesting. Raises
        :class:`OtherCase` for an id that differs only in case."""
        if len(data) > MAX_METADATA_BYTES:
            raise ValueError(f"longer than {MAX_METADATA_BYTES:,} bytes")
        with parser_limits(data):
            file = _decode_file(data)
            _check_numbers(file.source.values())

        if file.id.lower() != artifact_id.lower():
            raise ValueError("not the metadata of this id")
        if file.id != artifact_id:
            raise OtherCase

        if not file.mime_type.isprintable():
            raise ValueError("the MIME type is not printable")
        for name in file.names:
            _check_name(name.name)
        try:
            scope = cached_scope(**file.scope)
        except (TypeError, UsageError) as error:
            # A field is unknown, or has a value that no scope accepts.
            raise ValueError(f"the scope is not valid: {error}") from error

        fields = msgspec.structs.asdict(file)
        del fields["version"]
        return cls(**{**fields, "scope": scope})


_END_OF_YEAR_9999 = 253402300800


class _MetadataFile(msgspec.Struct):
    version: Literal[1]
    id: str
    sha256: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
    size_bytes: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
    mime_type: str
    names: Annotated[tuple[Name, ...], msgspec.Meta(min_length=1)]
    source: dict[str, object]
    stored: Annotated[float, msgspec.Meta(ge=0, le=_END_OF_YEAR_9999)]
    scope: dict[str, str | None] = {}
    blob: str = ""


_decode_file = msgspec.json.Decoder(_MetadataFile).decode


def _check_numbers(values: Iterable[object]) -> None:
    for value in values:
        if isinstance(value, dict):
            _check_numbers(value.values())
        elif isinstance(value, list):
            _check_numbers(value)
        elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise ValueError("a number is out of range")


def _check_name(name: str) -> None:
    max_bytes = 255  # of a name, in most file systems
    is_path = name in ("", ".", "..") or "/" in name or "\0" in name
    if is_path or len(name.encode()) > max_bytes:
        raise ValueError("a file name is not valid")


def _requested_names(description: Description, old: Metadata | None) -> dict[str, object]:
    """Return the last ten names that were suggested for the content, the newest last, as a part of its ``source``."""
    earlier = old.source.get("requested_names") if old else None
    names = [name for name in items_of(earlier) if name != description.name]
    max_names = 10
    if description.suggested:
        names = [*names, description.name][-max_names:]
    return {"requested_names": names} if names else {}
