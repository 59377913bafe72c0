"""Blocking artifact stores, and the router that fills them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Self

from .. import artifacts, routing
from ..artifacts import Durability, HostFacade, HostStore, Scope
from ..routing import Fetcher, OnRoutingEvent, RoutingPolicy
from .bridge import Blocking, blocking, described, iterating, made_by, taking_parameters_of
from .lifetime import Resource, closing, managing

__all__ = ["ArtifactStore", "LocalStore", "NoneStore", "Router", "Staged", "open_store"]


class Staged(Blocking[artifacts.Staged]):
    """A file that is not visible yet, made by :meth:`ArtifactStore.stage`."""

    write = blocking(artifacts.Staged.write)
    reset = blocking(artifacts.Staged.reset)
    commit = blocking(artifacts.Staged.commit)

    def follow(self) -> None:
        """Begin to measure the file at :attr:`path` while another program writes it, which appends to it and never
        changes what it wrote. Then :meth:`commit` has to read only what is new. The default begins nothing."""
        self.wrapped.follow()

    @property
    def path(self) -> Path:
        """The path where another program may write the whole content. Use either this or :meth:`write`."""
        return self.wrapped.path

    @property
    def size(self) -> int:
        """The number of bytes given to :meth:`write` so far."""
        return self.wrapped.size


class ArtifactStore(Resource[artifacts.ArtifactStore]):
    """Any store of :mod:`transports.artifacts`, blocking; :func:`open_store` makes one."""

    stage = managing(artifacts.ArtifactStore.stage, Staged)
    put_bytes = blocking(artifacts.ArtifactStore.put_bytes)
    put_text = blocking(artifacts.ArtifactStore.put_text)
    put_file = blocking(artifacts.ArtifactStore.put_file)
    stat = blocking(artifacts.ArtifactStore.stat)
    exists = blocking(artifacts.ArtifactStore.exists)
    change_token = blocking(artifacts.ArtifactStore.change_token)
    presigned = blocking(artifacts.ArtifactStore.presigned)
    list = blocking(artifacts.ArtifactStore.list)
    open = iterating(artifacts.ArtifactStore.open)
    get = blocking(artifacts.ArtifactStore.get)
    export = blocking(artifacts.ArtifactStore.export)
    delete = blocking(artifacts.ArtifactStore.delete)
    enforce_retention = blocking(artifacts.ArtifactStore.enforce_retention)
    gc = blocking(artifacts.ArtifactStore.gc)
    end_session = blocking(artifacts.ArtifactStore.end_session)
    fsck = blocking(artifacts.ArtifactStore.fsck)
    close = closing(artifacts.ArtifactStore.aclose)

    @described(artifacts.ArtifactStore.scoped)
    def scoped(self, scope: Scope) -> Self:
        """As :meth:`transports.ArtifactStore.scoped`, whose docstring replaces this one."""
        view = copy.copy(self)
        view.wrapped = self.wrapped.scoped(scope)
        view._open_manager = None  # the view was not entered
        return view

    @property
    def url(self) -> str:
        """URL that :func:`open_store` would open again."""
        return self.wrapped.url

    @property
    def max_bytes(self) -> int:
        """Largest artifact in bytes."""
        return self.wrapped.max_bytes


class LocalStore(ArtifactStore):
    """A store in a folder; see :class:`transports.LocalStore`."""

    @taking_parameters_of(artifacts.LocalStore)
    def __init__(self, wrapped: artifacts.LocalStore) -> None:
        super().__init__(wrapped)


class NoneStore(ArtifactStore):
    """A store that keeps nothing; see :class:`transports.NoneStore`."""

    @taking_parameters_of(artifacts.NoneStore)
    def __init__(self, wrapped: artifacts.NoneStore) -> None:
        super().__init__(wrapped)


class Router(Blocking[routing.Router]):
    """Stores every binary of an answer and puts a reference in its place; see :class:`transports.Router`."""

    def __init__(
        self,
        store: ArtifactStore | HostStore | HostFacade,
        *,
        fetcher: Fetcher | None = None,
        policy: RoutingPolicy | None = None,
        on_event: OnRoutingEvent | None = None,
        durability: Durability = "process",
    ) -> None:
        inner = store.wrapped if isinstance(store, ArtifactStore) else store
        router = routing.Router(inner, fetcher=fetcher, policy=policy, on_event=on_event, durability=durability)
        super().__init__(router)

    route = blocking(routing.Router.route)


open_store = made_by(artifacts.open_store, ArtifactStore)
