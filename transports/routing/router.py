"""The router: stores the files of an answer and puts references in their places."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import ParamSpec, TypeVar, cast

from ..artifacts import ArtifactRef, ArtifactStore, Durability, HostFacade, HostStore, discover_store
from ..binary import BinaryData
from ..binary.detect import Found, Place, field_of, replace
from ..errors import ABPError, BinaryError, UsageError
from ..protocol.messages import Effect, Sender
from ..protocol.schema import check_output
from ..protocol.strict_json import JSONValue, encode_json
from ..protocol.urls import redact_url
from ..tasks import in_thread
from .events import OnRoutingEvent, TransformContext
from .fetch import Fetcher, OnDownload
from .fields import fill_summary
from .guard import MAX_BYTES, clamp
from .layers import Layers, Recognised
from .policy import RoutingPolicy, Step
from .presets import ABP
from .references import captured_places, declared_text, metadata_of, reference_for, reference_metadata
from .result import Result
from .storing import Storing, stored_as
from .unkept import unkept

__all__ = ["Router"]

P = ParamSpec("P")
T = TypeVar("T")

#: Bytes of JSON of a small answer where the policy has no limit.
_SMALL = 64 * 1024


class Router:
    """Stores every file of an answer and puts a reference in its place. It needs no session::

        routed = await Router(store, policy=TABLEAU).route(tool_result, capability="download_workbook")

    ``policy`` says what is recognised, and how (docs/requirements.md R2-4); the default is for apps that speak ABP.
    ``fetcher`` brings content that is not in the answer; the default downloads, but reaches no page. ``on_event`` gets
    :class:`~transports.ObservationClamped` when what an agent reads of a result is cut, in the thread that reads it,
    and the events of the policy's transformer. ``durability`` is that of answers without a file (in JSON); files always
    wait for the disk.
    """

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

        ``outputs`` are files that came beside the answer, ``effects`` what the app did, ``source`` what the stored
        files shall say of their origin. ``started`` is the start of the work by :func:`time.perf_counter`, for
        ``duration_ms``. Differences from ``schema``, the capability's ``outputSchema``, become warnings.
        ``on_download`` gets the place, the bytes so far and the total of each file that is downloaded, in the name of
        ``sender``, the document that ``data`` came from, if it is known.

        Files are stored one after the other, in the order of the answer. If one cannot be stored, the others are, and
        then the first :class:`~transports.errors.ABPError` is raised: its ``result`` has what was stored, its
        ``details`` the field and the URL without credentials. An error of a policy's transformer is raised as it is.
        When the call is cancelled, content on the far side is released.
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
            for item in waiting:  # cancelled: nobody will fetch these
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
        # Added now, because text that is a file already needs no second file for its length.
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
        """Return an answer without files, as most are: the short way."""
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
        return Result(
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
        if len(failures) > 1:
            error.details["also_failed"] = [other.field for other, _ in failures[1:]]
        error.result = result
        return error


async def _look(large: bool, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do work that looks at a whole answer, in a thread if it is large."""
    return await in_thread(work, *args, **kwargs) if large else work(*args, **kwargs)


def _encoded(routed: object, capability: str) -> bytes:
    try:
        return encode_json(routed)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{capability}: the result holds a value that is no JSON: {error}") from error


def _strings(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list | tuple) else []
