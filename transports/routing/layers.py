"""The layers of docs/requirements.md R2-4.1 that look for files in an answer, in their order. Storing comes after
them."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from ..artifacts import ArtifactRef
from ..binary import BinaryData
from ..binary.detect import Found, Place, find, find_values, is_plain, replace
from ..protocol.strict_json import is_larger
from ..tasks import in_thread
from .blocks import parse_text_blocks
from .events import TransformContext
from .fetch import Fetcher
from .fields import FieldMatch, match_fields
from .policy import RoutingPolicy, Step

__all__ = ["Layers", "Recognised"]

T = TypeVar("T")

#: Values in an answer from which a search, which looks at each, is for a thread (measured: up to 11 µs for each).
_MANY = 3000
#: Values at which the first look at a large answer ends: in a caller's data that holds itself there is no end.
_VERY_MANY = 1_000_000

_NO_REFERENCES: Mapping[Place, ArtifactRef] = {}


class Recognised(NamedTuple):
    """The outcome of the layers: the answer as they left it, its content, the references of what is stored already,
    what the policy named, the steps taken, the characters that every text of it is known to be shorter than, and
    whether it is so large that all of it is looked at in a thread only."""

    data: object
    found: list[Found]
    refs: Mapping[Place, ArtifactRef]
    configured: Mapping[Place, FieldMatch] = {}
    steps: Sequence[Step] = ()
    shorter_than: int | None = None
    large: bool = False


class Layers:
    """The layers under one policy. ``fetcher`` releases content on the far side that a transformer left out."""

    def __init__(self, policy: RoutingPolicy, fetcher: Fetcher) -> None:
        self._policy = policy
        self._fetcher = fetcher
        self._search = policy.search
        self._min_chars = sys.maxsize if policy.search is None else policy.search.min_chars
        self._is_ruled = bool(policy.transformer or policy.tool_fields)

    async def recognise(self, data: object, context: TransformContext) -> Recognised:
        """Return what the answer ``data`` of a call holds, if :meth:`plain` does not say it. Raises what the policy's
        transformer raises."""
        apart = is_larger(data, _MANY)
        if apart and (short := await self._apart(partial(self.plain, at_most=None), data)):
            return short._replace(large=True)
        if made := await self._transformed(data, context):
            return made._replace(large=is_larger(made.data, _MANY))
        ruled = partial(self._ruled, capability=context.capability)
        return (await self._apart(ruled, data))._replace(large=True) if apart else ruled(data)

    async def _apart(self, search: Callable[[object], T], data: object) -> T:
        """Search a large answer in a thread. If the caller is cancelled meanwhile, its content is released."""
        try:
            return await in_thread(search, data)
        except asyncio.CancelledError:
            await self._release(find_values(data), ())
            raise

    def plain(self, data: object, *, at_most: int | None = _MANY) -> Recognised | None:
        """Return what ``data`` holds, the short way that most answers take: no transformer, no rules, no content
        blocks, and not larger than ``at_most`` values. Else return ``None``."""
        if self._is_ruled or (isinstance(data, dict) and isinstance(data.get("content"), list)):
            return None
        if is_plain(data, self._min_chars, at_most=at_most or _VERY_MANY):
            return Recognised(data, [], _NO_REFERENCES, shorter_than=self._min_chars)
        if at_most is not None and is_larger(data, at_most):
            return None
        others: list[tuple[Place, object]] = []
        return Recognised(data, find(data, heuristics=self._search, others=others), _references(others))

    async def _transformed(self, data: object, context: TransformContext) -> Recognised | None:
        """The transformer's answer, or ``None`` if it leaves the answer to the other layers."""
        if self._policy.transformer is None:
            return None
        before = find_values(data)
        try:
            made = self._policy.transformer(context.capability, data, context)
            if inspect.isawaitable(made):
                made = await made
        except BaseException:
            await self._release(before, ())
            raise
        if made is None:
            return None
        others: list[tuple[Place, object]] = []
        found = find_values(made, others=others)
        await self._release(before, found)
        steps = [Step("custom", "", "the transformer's answer; no other layer read it")]
        return Recognised(made, found, _references(others), {}, steps)

    def _ruled(self, data: object, capability: str) -> Recognised:
        """Configured fields first, then content blocks, descriptors and long texts at other places."""
        rules = self._policy.rules(capability)
        data, roots, steps = parse_text_blocks(data, rules, self._search)
        configured = {match.place: match for match in match_fields(data, rules, roots)}
        found = [Found(place, match.binary) for place, match in configured.items()]
        others: list[tuple[Place, object]] = []
        found += [
            item
            for item in find(replace(data, dict.fromkeys(configured)), heuristics=self._search, others=others)
            if not any(place[: len(item.path)] == item.path for place in configured)
        ]
        return Recognised(data, found, _references(others), configured, steps)

    async def _release(self, before: Sequence[Found], after: Sequence[Found]) -> None:
        """Release content on the far side that a transformer left out."""
        remaining = [item.binary.content for item in after if isinstance(item.binary, BinaryData)]
        for item in before:
            if isinstance(item.binary, BinaryData) and item.binary.content not in remaining:
                await self._fetcher.release(item.binary)


def _references(values: Sequence[tuple[Place, object]]) -> Mapping[Place, ArtifactRef]:
    """The references among values that are no JSON: of what code in this process has stored itself."""
    if not values:
        return _NO_REFERENCES
    return {place: value for place, value in values if isinstance(value, ArtifactRef)}
