"""The engine on Ray: as many actors as the ledger's backlog asks for, each a worker with one browser."""

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
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, TypeVar

from ...browser import short_folder
from ...errors import ABPError, ConnectFailed, Disconnected, TransportError, UsageError, first_line
from ...protocol import redact_url
from ...tasks import backoff_delay
from ..ledger import Counts, Ledger
from ..pool import Pool
from ..running import RunOptions, open_run
from ._local import LocalEngine, WorkReport

T = TypeVar("T")

#: Seconds for one answer of Ray; for a cluster to start or to be found.
_ANSWER, _START_TIMEOUT = 30.0, 90.0
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
            await self._do(self._connect, _START_TIMEOUT)
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
        await self._do(self._connect, _START_TIMEOUT)
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


#: Makes the pool of a worker that has so many sessions in its one browser. It travels to the worker.
MakePool = Callable[[int], Pool]


class RayWorker:
    """An actor. It takes its jobs from the ledger, and files go from it to the store; nothing of both passes by Ray."""

    def __init__(self) -> None:
        self._engine: LocalEngine | None = None
        self._task: asyncio.Task[WorkReport] | None = None
        self._drained = False

    async def started(self) -> None:
        """Return as soon as the actor is there."""

    async def work(self, place: str, make_pool: MakePool, options: RunOptions) -> WorkReport | ABPError:
        """Work until the run has ended, :meth:`drain` is called or :meth:`stop`. An error of ours is returned: one that
        is raised would come wrapped."""
        self._task = asyncio.current_task()
        try:
            async with open_run(place) as ledger:
                self._engine = LocalEngine(ledger, make_pool(options.concurrency), options)
                if self._drained:
                    self._engine.drain()
                return await self._engine.run()
        except ABPError as error:
            return type(error)(error.message, code=error.code, retryable=error.retryable)
        except asyncio.CancelledError:
            return WorkReport()  # by stop()

    async def drain(self) -> None:
        """Begin no more jobs."""
        self._drained = True
        if self._engine is not None:
            self._engine.drain()

    async def stop(self) -> None:
        """Cancel the jobs that run, and settle them."""
        if self._task is not None:
            self._task.cancel()


logger = logging.getLogger("transports.batch")

#: Seconds between two looks at the ledger and the actors.
_LOOK = 0.5
#: How often in a row actors may be lost while no job ends.
_MAX_FAILURES = 5
#: Seconds for the actors to settle their jobs once they are told to stop.
_STOP = 15.0
#: Seconds for an actor to start where a CPU is free, and where it waits for one while no other actor works.
_START, _ROOM = 90.0, 600.0
#: Seconds between two looks at the cluster.
_CHECK = 5.0


@dataclass(slots=True)
class _Actor:
    handle: Any
    started: Any
    answer: Any
    begun: float = field(default_factory=time.monotonic)
    works: bool = False
    drained: bool = False


class RayEngine:
    """Workers of a run in Ray actors with one browser each, on the Ray cluster at ``address`` or on a local one.

    ``place`` is the run's ledger where an actor finds it: its folder, or a ``postgresql://`` address. ``make_pool``
    makes the pool of an actor. ``browsers`` is how many actors there are at most, by default one for each CPU of the
    cluster. The limits of ``options`` hold for all of them together: ``concurrency`` and ``rate`` are shared out.
    ``shared`` says that other machines reach the ledger and the store. ``on_counts`` is told how the run stands.

    An actor that is lost, or does not start, is replaced, and so is a local cluster that has ended; the jobs of lost
    actors are queued again or ``unknown``, as those of any worker that is lost.
    Raises :class:`~transports.errors.UsageError` without Ray.
    """

    def __init__(
        self,
        ledger: Ledger,
        place: str,
        make_pool: MakePool,
        options: RunOptions,
        *,
        address: str | None = None,
        browsers: int | None = None,
        shared: bool = True,
        on_counts: Callable[[Counts], object] = lambda _: None,
    ) -> None:
        self._ledger = ledger
        self._place = place
        self._make_pool = make_pool
        self._options = options
        self._browsers = browsers
        self._shared = shared
        self._on_counts = on_counts
        self._cluster = RayCluster(address, min(browsers or os.cpu_count() or 1, options.concurrency))
        self._actors: dict[int, _Actor] = {}
        self._stopped = False
        self._wake = asyncio.Event()
        self._calls = 0
        self._recycled: Counter[str] = Counter()
        self._failures, self._not_before, self._open = 0, 0.0, 0
        self._checked = 0.0

    def drain(self) -> None:
        """Begin no more jobs."""
        self._stopped = True
        self._wake.set()

    async def run(self) -> WorkReport:
        """Run jobs to the end. Raises :class:`~transports.errors.ConnectFailed` for a cluster that does not answer,
        :class:`~transports.errors.UsageError` for other machines that do not reach the ledger and the store, and what
        actors raise of which none gets a job done."""
        end = None if self._options.deadline is None else time.monotonic() + self._options.deadline
        async with self._cluster:
            if not self._shared and await self._cluster.is_elsewhere():
                raise UsageError(
                    "the Ray cluster has other machines, which do not reach the run's folder; name what they reach: "
                    "--ledger postgresql://HOST/DATABASE?run=NAME and --store s3://BUCKET/PREFIX"
                )
            shares = self._shares(self._browsers or await self._cluster.cores())
            try:
                while True:
                    self._stopped = self._stopped or (end is not None and time.monotonic() >= end)
                    counts = await self._ledger.counts()
                    self._on_counts(counts)
                    await self._collect(counts)
                    waiting = await self._waiting()
                    if time.monotonic() >= self._checked + _CHECK:
                        self._checked = time.monotonic()
                        lost = await self._cluster.is_lost()  # if the head is gone, Ray ends this process in a minute
                        if waiting and counts.open and not self._stopped:
                            await self._check_starts(waiting, lost=lost)
                    if not self._actors and (self._stopped or not counts.open):
                        return WorkReport(self._calls, dict(self._recycled))
                    await self._scale(shares, 0 if self._stopped else counts.open, end)
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._wake.wait(), _LOOK)
                    self._wake.clear()
            finally:
                await self._stop()

    def _shares(self, count: int) -> list[RunOptions]:
        """What each of ``count`` actors may do, so that all together keep the limits."""
        rate = self._options.rate
        most_actors = self._options.concurrency
        if rate is not None:  # each may begin with two jobs at once: together with a second's worth at most
            most_actors = min(most_actors, max(1, int(rate / 2)))
        count = min(count, most_actors)
        most, more = divmod(self._options.concurrency, count)
        rate = None if rate is None else rate / count
        return [replace(self._options, concurrency=most + (at < more), rate=rate) for at in range(count)]

    async def _scale(self, shares: list[RunOptions], backlog: int, end: float | None) -> None:
        """Have an actor for each share that ``backlog`` jobs want; let those that are more end."""
        for at, share in enumerate(shares):
            actor = self._actors.get(at)
            if backlog > 0 and actor is None and time.monotonic() >= self._not_before:
                left = None if end is None else max(end - time.monotonic(), 0.001)
                options = replace(share, deadline=left)
                started = await self._cluster.start(RayWorker, "work", self._place, self._make_pool, options)
                self._actors[at] = _Actor(*started)
            elif backlog <= 0 and actor is not None:
                if not actor.drained:
                    actor.drained = True
                    await self._cluster.tell(actor.handle, "drain")
                elif not actor.works:  # it was told before it started, if it ever does: it has no job
                    del self._actors[at]
                    await self._cluster.kill(actor.handle)
            backlog -= share.concurrency

    async def _collect(self, counts: Counts) -> None:
        """Take the actors that have ended away, and note what became of them."""
        if counts.open != self._open:
            self._open, self._failures = counts.open, 0
        ready = await self._cluster.answered([actor.answer for actor in self._actors.values()])
        for at, actor in [*self._actors.items()]:
            if actor.answer not in ready:
                continue
            del self._actors[at]
            told = await self._cluster.result(actor.answer)
            await self._cluster.kill(actor.handle)
            if isinstance(told, WorkReport):
                self._calls += told.calls
                self._recycled.update(told.recycled)
            elif isinstance(told, ABPError):
                self._lost(told)

    async def _check_starts(self, waiting: dict[int, _Actor], *, lost: bool) -> None:
        """Replace what keeps actors from starting: the connection to a cluster that has ended (``lost``), or an actor
        itself."""
        now = time.monotonic()
        if lost:
            self._actors.clear()
            await self._cluster.reopen()
            self._lost(Disconnected("the Ray cluster has ended, or its part on this machine"))
            return
        late = [at for at, actor in waiting.items() if now >= actor.begun + _START]
        if late and await self._cluster.has_room():
            for at in late:
                await self._cluster.kill(self._actors.pop(at).handle)
                self._lost(ConnectFailed(f"an actor on Ray did not start within {_START:g} s"))
        elif len(waiting) == len(self._actors) and now >= min(actor.begun for actor in waiting.values()) + _ROOM:
            raise ConnectFailed(
                f"no actor found a free CPU on Ray within {_ROOM:g} s; end other work there, or add machines (`ray "
                "status` shows both), then run the same command again"
            )

    async def _waiting(self) -> dict[int, _Actor]:
        """The actors that have not started yet."""
        waiting = {at: actor for at, actor in self._actors.items() if not actor.works}
        ready = await self._cluster.answered([actor.started for actor in waiting.values()])
        for actor in waiting.values():
            actor.works = actor.started in ready
        return {at: actor for at, actor in waiting.items() if not actor.works}

    def _lost(self, error: ABPError) -> None:
        self._recycled["ended"] += 1
        logger.warning("a worker was lost: %s", error.message)
        if time.monotonic() < self._not_before:  # begun before the last failure: a machine takes all its actors along
            return
        self._failures += 1
        if self._failures >= _MAX_FAILURES:
            if isinstance(error, TransportError):
                raise type(error)(f"{error.message}, as {self._failures - 1} before it; {self._cluster.advice}")
            raise error
        self._not_before = time.monotonic() + backoff_delay(self._failures)

    async def _stop(self) -> None:
        """Have the actors that still work cancel their jobs and settle them; end them."""
        with contextlib.suppress(ConnectFailed):
            for actor in self._actors.values():
                await self._cluster.tell(actor.handle, "stop")
            until = time.monotonic() + _STOP
            waiting = await self._waiting()
            answers = [actor.answer for at, actor in self._actors.items() if at not in waiting]
            while len(await self._cluster.answered(answers)) < len(answers) and time.monotonic() < until:
                await asyncio.sleep(0.1)
            for actor in self._actors.values():
                await self._cluster.kill(actor.handle)
