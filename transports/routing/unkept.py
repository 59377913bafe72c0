"""The artifacts of an answer that no store keeps. No I/O."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from ..artifacts import ArtifactRef, ArtifactStore, NoneStore

__all__ = ["Unkept", "unkept"]


class Unkept(Mapping[str, ArtifactRef]):
    """The reference of a JSON answer without files, under ``""``, made when somebody asks for it.

    To hash, name and describe what nobody keeps takes longer than all the rest of a small call, and few look at it.
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
    """Return the artifacts of a JSON answer, ``data``, that ``store`` does not keep; ``None`` if it keeps or logs what
    it is given. ``origin`` is the ``source`` of the reference, with the capability in it."""
    if not isinstance(store, NoneStore) or store.audit or len(data) > store.max_bytes:
        return None
    for value in origin.values():
        if type(value) is not str:
            return None  # the store checks other values, now and not when somebody looks
    store.warn_once()
    return Unkept(store, data, origin)
