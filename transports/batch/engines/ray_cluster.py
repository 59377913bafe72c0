"""Ray, as far as the kit uses it: a cluster that is there or one of this process's own, and actors in it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Self, TypeVar

from ...browser.process.runfolder import short_folder
from ...errors import ConnectFailed, Disconnected, UsageError, first_line
from ...protocol.urls import redact_url

__all__ = ["RayCluster", "require_ray"]

T = TypeVar("T")

#: Seconds for one answer of Ray; for a cluster to start or to be found.
_ANSWER, _START = 30.0, 90.0
#: Bytes of Ray's object store, the least it accepts: nothing is ever put there.
_OBJECT_STORE = 80 << 20
#: Bytes of the path of a folder below which Ray puts its sockets.
_LONGEST_FOLDER = 43
#: What clusters of our own ask for. Ray keeps the first one that it finds, as long as the process lives.
_TOKEN = secrets.token_hex(32)
#: What a cluster of our own runs with. The first has the raylet end what an actor leaves behind when it is killed: a
#: Chromium, which is in a process group of its own, and its driver. Nothing is sent to Ray's makers.
_ENVIRONMENT = {
    "RAY_kill_child_processes_on_worker_exit_with_raylet_subreaper": "true",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


def require_ray() -> Any:
    """Return the module ``ray``. Raises :class:`~transports.errors.UsageError` if it is not installed."""
    try:
        import ray
    except ImportError as error:
        raise UsageError(
            f"the engine ray needs Ray ({error}); install it: pip install 'abp-transports[ray]'"
        ) from error
    return ray


class RayCluster:
    """A connection to Ray, which ``async with`` opens: to the cluster at ``address`` (``auto`` is the one of this
    machine), or to a new one on this machine for ``actors`` actors, which ends with this process.

    Raises :class:`~transports.errors.UsageError` without Ray, and :class:`~transports.errors.ConnectFailed` for a
    cluster that does not answer.
    """

    def __init__(self, address: str | None, actors: int) -> None:
        self._ray = require_ray()
        self._address = address or os.environ.get("RAY_ADDRESS") or None
        self._actors = actors
        self._thread = _RayThread()
        self._hangs = ""  # why nothing more is asked: the thread still waits for an answer
        self._stack = contextlib.ExitStack()

    @property
    def is_own(self) -> bool:
        """Whether the cluster is one of this process's own."""
        return self._address is None

    @property
    def advice(self) -> str:
        """What to do when the cluster fails, as error messages end. `ray status` finds no cluster of our own."""
        look = "" if self.is_own else "look at `ray status`, then "
        return f"{look}run the same command again: it goes on where it stopped"

    async def __aenter__(self) -> Self:
        try:
            await self._do(self._connect, _START)
            _take_signals_back()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Leave the cluster, and end it if it is our own. Never raises."""
        if not self._hangs:
            with contextlib.suppress(ConnectFailed):
                await self._do(self._close, _ANSWER)
        self._thread.end()

    def _connect(self) -> None:
        logging.getLogger("ray").setLevel(logging.ERROR)
        # Ray prints to stdout, whatever `log_to_driver` says, that a process of the cluster was lost: we say so.
        if inner := getattr(getattr(self._ray, "_private", None), "worker", None):
            inner._worker_logs_enabled = False
        common: Mapping[str, object] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if self._address is not None:
            self._ray.init(address=self._address, **common)
            return
        folder = self._stack.enter_context(short_folder(_LONGEST_FOLDER))
        # Whoever reaches a Ray cluster may run code in it, unless it asks for a token. It asks for this one, instead of
        # one that it would keep in the user's home, if RAY_AUTH_MODE is not set here.
        self._stack.enter_context(_environment({**_ENVIRONMENT, "RAY_AUTH_TOKEN": _TOKEN}))
        try:
            self._start(folder, **common)
        except Exception:  # noqa: BLE001 - Ray waits 30 seconds for its own processes, which a busy machine may exceed
            self._ray.shutdown()
            self._start(folder, **common)

    def _start(self, folder: Path, **options: object) -> None:
        self._ray.init(
            address="local",
            num_cpus=self._actors,
            include_dashboard=False,
            object_store_memory=_OBJECT_STORE,
            _temp_dir=str(folder),
            **options,
        )

    def _close(self) -> None:
        try:
            self._ray.shutdown()
        finally:
            self._stack.close()

    async def machines(self) -> set[str]:
        """Return the names of the machines of the cluster."""
        nodes = await self._do(self._ray.nodes, _ANSWER)
        return {str(node["NodeManagerHostname"]) for node in nodes if node["Alive"]}

    async def is_elsewhere(self) -> bool:
        """Whether an actor may be on another machine than this."""
        return not self.is_own and await self.machines() != {socket.gethostname()}

    async def cores(self) -> int:
        """Return the number of CPUs of the cluster as it is now, one at least."""
        return max(int((await self._do(self._ray.cluster_resources, _ANSWER)).get("CPU", 0)), 1)

    async def has_room(self) -> bool:
        """Whether a CPU of the cluster is free."""
        return float((await self._do(self._ray.available_resources, _ANSWER)).get("CPU", 0)) >= 1

    async def is_lost(self) -> bool:
        """Whether the part of the cluster has ended that this process is connected to: no actor starts any more, and
        Ray does not say so."""

        def look() -> bool:
            here = self._ray.get_runtime_context().get_node_id()
            return not any(node["Alive"] for node in self._ray.nodes() if node["NodeID"] == here)

        return await self._do(look, _ANSWER)

    async def reopen(self) -> None:
        """Connect anew, to a new cluster if it is our own. Its actors are gone with the old connection."""
        await self._do(self._close, _ANSWER)
        await self._do(self._connect, _START)
        _take_signals_back()

    async def start(self, kind: type, method: str, *args: object) -> tuple[Any, Any, Any]:
        """Start an actor of a class, which Ray never starts again by itself, and call a method of it. Return the actor,
        the answer of its method ``started``, and the answer to come. Where there is no room for the actor, a cluster
        that can grow does."""

        def start() -> tuple[Any, Any, Any]:
            remote = self._ray.remote(kind).options(num_cpus=1, max_restarts=0, max_task_retries=0)
            actor = remote.remote()
            return actor, actor.started.remote(), getattr(actor, method).remote(*args)

        return await self._do(start, _ANSWER)

    async def tell(self, actor: Any, method: str) -> None:
        """Call a method of an actor, whose answer nobody waits for."""
        await self._do(lambda: getattr(actor, method).remote(), _ANSWER)

    async def kill(self, actor: Any) -> None:
        """End an actor at once."""
        await self._do(lambda: self._ray.kill(actor), _ANSWER)

    async def answered(self, answers: Sequence[Any]) -> list[Any]:
        """Return those of the answers that are there."""
        if not answers:
            return []
        ready, _ = await self._do(lambda: self._ray.wait([*answers], num_returns=len(answers), timeout=0), _ANSWER)
        return list(ready)

    async def result(self, answer: Any) -> object:
        """Return an answer that is there, or the error for an actor that was lost."""
        errors = self._ray.exceptions

        def get() -> object:
            try:
                return self._ray.get(answer, timeout=_ANSWER)
            except errors.RayActorError as error:
                lines = str(error).strip().splitlines() or [""]  # an error of its start stands in the last one
                return Disconnected(f"an actor on Ray ended: {lines[-1 if 'creation task' in lines[0] else 0]}")
            except errors.RayTaskError as error:
                return Disconnected(f"an actor on Ray failed: {first_line(error.cause or error)}")

        return await self._do(get, _ANSWER)

    async def _do(self, work: Callable[[], T], seconds: float) -> T:
        """Do something in Ray's thread. Whatever Ray raises becomes an error of ours."""
        where = "the Ray cluster" if self._address is None else f"the Ray cluster at {redact_url(self._address)}"
        if self._hangs:
            raise ConnectFailed(self._hangs)
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.wrap_future(self._thread.submit(work))
        except TimeoutError as error:
            self._hangs = f"{where} gave no answer within {seconds:g} s; {self.advice}"
            raise ConnectFailed(self._hangs) from error
        except ImportError as error:
            raise UsageError(f"{where} needs more of Ray ({error}); pip install 'abp-transports[ray]'") from error
        except Exception as error:
            raise ConnectFailed(f"{where} cannot be used: {first_line(error)}; {self.advice}") from error


class _RayThread:
    """The one thread that calls Ray, which ends the processes of its cluster with the thread that started them. Where
    Ray hangs, the thread keeps no program from ending."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="abp-ray", daemon=True).start()

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Have the thread do something."""
        future: Future[T] = Future()
        self._work.put((future, work))
        return future

    def end(self) -> None:
        """End the thread after what it was given."""
        self._work.put(None)

    def _serve(self) -> None:
        while (item := self._work.get()) is not None:
            future, work = item
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except BaseException as error:  # noqa: BLE001 - Ray ends a program by SystemExit, too
                    future.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))


def _take_signals_back() -> None:
    """Set this process's handlers of signals again: Ray has replaced that of SIGTERM by one that aborts."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            handler = signal.getsignal(number)
            if handler is not None:
                signal.signal(number, handler)


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables of this process that are not set yet, while the block lasts. Those of Ray that are set inside of it
    go with them."""
    before = {*os.environ}
    os.environ.update({name: value for name, value in variables.items() if name not in before})
    try:
        yield
    finally:
        for name in {*os.environ} - before:
            if name.startswith("RAY_"):
                os.environ.pop(name, None)
