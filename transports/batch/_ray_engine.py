"""Engine on Ray: actors with one browser each, scaled with the ledger's backlog."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
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

from .._internal.tasks import backoff_delay
from ..errors import ABPError, ConnectFailed, Disconnected, TransportError, UsageError, first_line
from ..playwright._process import short_folder
from ..protocol._plain_text import redact_url
from ._batch import LocalEngine, WorkReport, open_run
from ._pool import Pool
from ._runner import RunOptions
from .ledger._ledger import Ledger
from .ledger._schema import Counts

logger = logging.getLogger("transports.batch")

T = TypeVar("T")

#: Authentication token of local clusters. One per process, since Ray caches the first token that it reads.
_TOKEN = secrets.token_hex(32)
#: Environment of local clusters. The first variable makes Ray end the processes that a killed actor leaves behind: its
#: driver, and its Chromium, which is in another process group. The second variable turns off usage reports to Ray's
#: makers, and the third a warning about accelerators in older versions of Ray.
_ENVIRONMENT = {
    "RAY_kill_child_processes_on_worker_exit_with_raylet_subreaper": "true",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the engine, times in seconds."""

    #: For one answer of Ray, and for starting or finding a cluster.
    answer: float = 30.0
    open: float = 90.0
    #: Between two checks of the ledger and the actors, and of the cluster.
    look: float = 0.5
    check: float = 5.0
    #: For an actor to start on a free CPU, and for it to find a free CPU while no other actor works.
    start: float = 90.0
    room: float = 600.0
    #: For the actors to settle their jobs after a request to stop.
    stop: float = 15.0
    #: Lost actors in a row while no job ends.
    failures: int = 5


LIMITS = Limits()


def require_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise UsageError(
            f"the engine ray needs Ray ({error}); install it: pip install 'abp-transports[ray]'"
        ) from error
    return ray


class RayCluster:
    """A connection to the cluster at ``address`` (``auto`` is the cluster of this machine). Without an address, a local
    cluster for ``actors`` actors is started, which ends with this process."""

    def __init__(self, address: str | None, actors: int) -> None:
        self._ray = require_ray()
        self._address = address or os.environ.get("RAY_ADDRESS") or None
        self._actors = actors
        self._thread = _RayThread()
        #: Message for all further calls once Ray has not answered in time, since the thread still waits for it.
        self._hangs = ""
        self._stack = contextlib.ExitStack()

    @property
    def is_own(self) -> bool:
        return self._address is None

    @property
    def advice(self) -> str:
        """End of error messages. ``ray status`` cannot find a local cluster of this process."""
        look = "" if self.is_own else "look at `ray status`, then "
        return f"{look}run the same command again: it resumes where it stopped"

    async def __aenter__(self) -> Self:
        try:
            await self._run_in_thread(self._connect_to_cluster, LIMITS.open)
            _take_signals_back()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Disconnect, and end a local cluster. Never raises."""
        if not self._hangs:
            with contextlib.suppress(ConnectFailed):
                await self._run_in_thread(self._shut_down)
        self._thread.end()

    def _connect_to_cluster(self) -> None:
        """Connect to the cluster, or start a local one. This runs in Ray's thread."""
        logging.getLogger("ray").setLevel(logging.ERROR)
        # Ray would print lost processes of the cluster to stdout, even without `log_to_driver`. This module logs them.
        ray_worker = getattr(getattr(self._ray, "_private", None), "worker", None)
        if ray_worker is not None:
            ray_worker._worker_logs_enabled = False
        quiet: Mapping[str, object] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if self._address is not None:
            self._ray.init(address=self._address, **quiet)
            return

        # Ray puts its sockets below this folder, and the path of a socket has a limit.
        bytes_of_socket_name = 43
        folder = self._stack.enter_context(short_folder(bytes_of_socket_name))
        # Without a token, any local user could run code in the cluster. This token replaces the one that Ray would
        # store in the user's home, unless RAY_AUTH_MODE is set.
        self._stack.enter_context(_setting_variables({**_ENVIRONMENT, "RAY_AUTH_TOKEN": _TOKEN}))
        try:
            self._start_local(folder, **quiet)
        except Exception:  # noqa: BLE001 - whatever Ray raises
            # Ray gives its processes 30 seconds to start, too few on a busy machine. Try once more.
            self._ray.shutdown()
            self._start_local(folder, **quiet)

    def _start_local(self, folder: Path, **options: object) -> None:
        self._ray.init(
            address="local",
            num_cpus=self._actors,
            include_dashboard=False,
            # The store of objects stays unused, so it gets the smallest size that Ray accepts.
            object_store_memory=80 << 20,
            _temp_dir=str(folder),
            **options,
        )

    def _shut_down(self) -> None:
        try:
            self._ray.shutdown()
        finally:
            self._stack.close()

    async def is_elsewhere(self) -> bool:
        """Return whether an actor may be on another machine."""
        if self.is_own:
            return False
        nodes = await self._run_in_thread(self._ray.nodes)
        machines = {str(node["NodeManagerHostname"]) for node in nodes if node["Alive"]}
        return machines != {socket.gethostname()}

    async def cores(self) -> int:
        resources = await self._run_in_thread(self._ray.cluster_resources)
        return max(int(resources.get("CPU", 0)), 1)

    async def has_room(self) -> bool:
        resources = await self._run_in_thread(self._ray.available_resources)
        return float(resources.get("CPU", 0)) >= 1

    async def is_lost(self) -> bool:
        """Return whether this process's node of the cluster has ended: actors do not start any more, and Ray reports no
        error."""

        def is_node_lost() -> bool:
            own_id = self._ray.get_runtime_context().get_node_id()
            own_nodes = [node for node in self._ray.nodes() if node["NodeID"] == own_id]
            return not any(node["Alive"] for node in own_nodes)

        return await self._run_in_thread(is_node_lost)

    async def reopen(self) -> None:
        """Connect again, after the cluster was lost. The old actors are lost; if the cluster was local, another one is
        started."""
        await self._run_in_thread(self._shut_down)
        await self._run_in_thread(self._connect_to_cluster, LIMITS.open)
        _take_signals_back()

    async def start_actor(self, kind: type, method: str, *args: object) -> tuple[Any, Any, Any]:
        """Start an actor, which Ray does not restart. Return its handle, and the pending answers of its methods
        ``started`` and ``method``."""

        def start() -> tuple[Any, Any, Any]:
            remote = self._ray.remote(kind).options(num_cpus=1, max_restarts=0, max_task_retries=0)
            actor = remote.remote()
            return actor, actor.started.remote(), getattr(actor, method).remote(*args)

        return await self._run_in_thread(start)

    async def call_without_answer(self, actor: Any, method: str) -> None:
        await self._run_in_thread(lambda: getattr(actor, method).remote())

    async def kill(self, actor: Any) -> None:
        await self._run_in_thread(lambda: self._ray.kill(actor))

    async def answered(self, answers: Sequence[Any]) -> list[Any]:
        """Return those of the pending ``answers`` that have arrived."""
        if not answers:
            return []
        ready, _ = await self._run_in_thread(lambda: self._ray.wait([*answers], num_returns=len(answers), timeout=0))
        return list(ready)

    async def result(self, answer: Any) -> object:
        """Return the value of an arrived answer, or the error for a lost actor."""
        errors = self._ray.exceptions

        def get() -> object:
            try:
                return self._ray.get(answer, timeout=LIMITS.answer)
            except errors.RayActorError as error:
                lines = str(error).strip().splitlines() or [""]
                reason = lines[0]
                # If the actor did not start, the first line only says so, and the last line has the error.
                if "creation task" in reason:
                    reason = lines[-1]
                return Disconnected(f"an actor on Ray ended: {reason}")
            except errors.RayTaskError as error:
                return Disconnected(f"an actor on Ray failed: {first_line(error.cause or error)}")

        return await self._run_in_thread(get)

    async def _run_in_thread(self, work: Callable[[], T], timeout: float | None = None) -> T:
        """Call ``work`` in Ray's thread, and raise Ray's errors as errors of the kit. Work that does not end within
        ``timeout`` seconds cannot be stopped and blocks the thread, so all further calls fail."""
        if self._hangs:
            raise ConnectFailed(self._hangs)
        where = "the Ray cluster"
        if self._address is not None:
            where += f" at {redact_url(self._address)}"
        max_seconds = timeout or LIMITS.answer

        try:
            async with asyncio.timeout(max_seconds):
                return await asyncio.wrap_future(self._thread.submit(work))
        except TimeoutError as error:
            self._hangs = f"{where} gave no answer within {max_seconds:g} s; {self.advice}"
            raise ConnectFailed(self._hangs) from error
        except ImportError as error:
            raise UsageError(f"{where} needs more of Ray ({error}); pip install 'abp-transports[ray]'") from error
        except Exception as error:
            raise ConnectFailed(f"{where} cannot be used: {first_line(error)}; {self.advice}") from error


class _RayThread:
    """The only thread that calls Ray, because Ray ends the processes of its cluster with the thread that started them.
    It is a daemon thread, so that a program can end while Ray hangs."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="abp-ray", daemon=True).start()

    def submit(self, work: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        self._work.put((future, work))
        return future

    def end(self) -> None:
        self._work.put(None)

    def _serve(self) -> None:
        for future, work in iter(self._work.get, None):
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except BaseException as error:  # noqa: BLE001 - Ray may raise SystemExit
                    future.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))


def _take_signals_back() -> None:
    """Set Python's handlers of signals again: Ray has replaced the handler of SIGTERM by one that aborts."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            handler = signal.getsignal(number)
            if handler is not None:
                signal.signal(number, handler)


@contextlib.contextmanager
def _setting_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Set unset environment variables for the length of a block. Afterwards, remove all added ``RAY_`` variables,
    including those added by Ray."""
    names_before = {*os.environ}
    for name, value in variables.items():
        os.environ.setdefault(name, value)
    try:
        yield
    finally:
        for name in {*os.environ} - names_before:
            if name.startswith("RAY_"):
                os.environ.pop(name, None)


#: Function that makes a worker's pool of one browser, given its number of sessions. It is pickled for the worker.
MakePool = Callable[[int], Pool]


class RayWorker:
    """Class of the actors. An actor leases its jobs from the ledger and writes files to the store, not through Ray."""

    def __init__(self) -> None:
        self._engine: LocalEngine | None = None
        self._task: asyncio.Task[WorkReport] | None = None
        self._drained = False

    async def started(self) -> None:
        """Return as soon as the actor has started."""

    async def work(self, place: str, make_pool: MakePool, options: RunOptions) -> WorkReport | ABPError:
        """Work on the run. Errors of this package are returned, because Ray would wrap raised ones."""
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
            return WorkReport()  # stop() has cancelled the task

    async def drain(self) -> None:
        self._drained = True
        if self._engine is not None:
            self._engine.drain()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()


@dataclass(slots=True)
class _Actor:
    """A worker of Ray. ``started`` and ``answer`` are pending. ``begun`` is a time by :func:`time.monotonic`; the actor
    ``works`` once it has started."""

    handle: Any
    started: Any
    answer: Any
    begun: float = field(default_factory=time.monotonic)
    works: bool = False
    drained: bool = False


class RayEngine:
    """Engine with workers in Ray actors, one browser each, on the cluster at ``address`` or on a local one.

    ``place`` is the run's ledger as actors can reach it: its folder, or a ``postgresql://`` address. ``make_pool``
    makes the pool of an actor. ``browsers`` is the maximum number of actors, by default one per CPU of the cluster. The
    ``concurrency`` and the ``rate`` of ``options`` are divided among the actors. ``shared`` means that other machines
    can reach the ledger and the store.

    Lost actors, actors that do not start and an ended local cluster are replaced. Jobs of lost actors are queued again
    or ``unknown``, as those of any lost worker."""

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
        #: Losses in a row without an ended job; losses before ``_not_before`` count as one.
        self._failures = 0
        self._not_before = 0.0
        self._open_jobs = 0
        self._checked_at = 0.0

    def drain(self) -> None:
        self._stopped = True
        self._wake.set()

    async def run(self) -> WorkReport:
        """Run jobs as :meth:`.Engine.run` does. Raises :class:`~transports.errors.UsageError` for a cluster with
        machines that cannot reach the ledger and the store, and the error of the actors if they fail repeatedly while
        no job ends."""
        end = math.inf
        if self._options.deadline is not None:
            end = time.monotonic() + self._options.deadline
        async with self._cluster:
            if not self._shared and await self._cluster.is_elsewhere():
                raise UsageError(
                    "the Ray cluster has machines that cannot reach the run's folder; name shared places: "
                    "--ledger postgresql://HOST/DATABASE?run=NAME and --store s3://BUCKET/PREFIX"
                )
            shares = self._split_options(self._browsers or await self._cluster.cores())
            try:
                while not await self._advance(shares, end):
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(LIMITS.look):
                            await self._wake.wait()
                    self._wake.clear()
            finally:
                await self._stop_actors()
        return WorkReport(self._calls, dict(self._recycled))

    async def _advance(self, shares: list[RunOptions], end: float) -> bool:
        """Do what is due: collect results, replace lost actors, start or drain actors. Return whether the work has
        ended. No more jobs are started after ``end``, a time by :func:`time.monotonic`."""
        self._stopped = self._stopped or time.monotonic() >= end
        counts = await self._ledger.counts()
        self._on_counts(counts)
        await self._collect_results(counts)
        starting = await self._starting_actors()

        if time.monotonic() >= self._checked_at + LIMITS.check:
            self._checked_at = time.monotonic()
            # Ask even if no actor is starting: without its head, Ray would end this process within a minute.
            is_lost = await self._cluster.is_lost()
            if starting and counts.open and not self._stopped:
                await self._check_starts(starting, lost=is_lost)

        if not self._actors and (self._stopped or not counts.open):
            return True
        await self._scale_actors(shares, 0 if self._stopped else counts.open, end)
        return False

    def _split_options(self, count: int) -> list[RunOptions]:
        """Return the options of at most ``count`` actors. Together they keep the limits of the run."""
        actors = min(count, self._options.concurrency)
        rate_of_each: float | None = None
        if self._options.rate is not None:
            # Each actor may start with a burst of two jobs. All bursts together must not exceed the rate of a second.
            actors = min(actors, max(1, int(self._options.rate / 2)))
            rate_of_each = self._options.rate / actors

        concurrency, remainder = divmod(self._options.concurrency, actors)
        share = replace(self._options, concurrency=concurrency, rate=rate_of_each)
        larger_shares = [replace(share, concurrency=concurrency + 1) for _ in range(remainder)]
        return larger_shares + [share] * (actors - remainder)

    async def _scale_actors(self, shares: list[RunOptions], backlog: int, end: float) -> None:
        """Start or drain actors for a ``backlog`` of open jobs."""
        unassigned_jobs = backlog
        for number, share in enumerate(shares):
            actor = self._actors.get(number)
            is_needed = unassigned_jobs > 0
            if is_needed and actor is None and time.monotonic() >= self._not_before:
                await self._start_actor(number, share, end)
            elif not is_needed and actor is not None:
                await self._drain_actor(number, actor)
            unassigned_jobs -= share.concurrency

    async def _start_actor(self, number: int, options: RunOptions, end: float) -> None:
        if end < math.inf:
            remaining = max(end - time.monotonic(), 0.001)  # a deadline must be more than 0
            options = replace(options, deadline=remaining)
        handle, started, answer = await self._cluster.start_actor(
            RayWorker, "work", self._place, self._make_pool, options
        )
        self._actors[number] = _Actor(handle, started, answer)

    async def _drain_actor(self, number: int, actor: _Actor) -> None:
        """Ask an actor to drain. An actor that still has not started when this is called again has no job, so it is
        ended."""
        if not actor.drained:
            actor.drained = True
            await self._cluster.call_without_answer(actor.handle, "drain")
        elif not actor.works:
            del self._actors[number]
            await self._cluster.kill(actor.handle)

    async def _collect_results(self, counts: Counts) -> None:
        """Add the reports of actors that have ended, and count those that were lost."""
        if counts.open != self._open_jobs:
            self._open_jobs = counts.open
            self._failures = 0
        ready = await self._cluster.answered([actor.answer for actor in self._actors.values()])
        actors = {number: actor for number, actor in self._actors.items() if actor.answer in ready}
        for number, actor in actors.items():
            del self._actors[number]
            result = await self._cluster.result(actor.answer)
            await self._cluster.kill(actor.handle)
            if isinstance(result, WorkReport):
                self._calls += result.calls
                self._recycled.update(result.recycled)
            elif isinstance(result, ABPError):
                self._count_loss(result)

    async def _check_starts(self, starting: dict[int, _Actor], *, lost: bool) -> None:
        """Reconnect if the cluster is ``lost``, and end actors that did not start in time. Raises
        :class:`~transports.errors.ConnectFailed` if no actor works because no CPU becomes free."""
        now = time.monotonic()
        if lost:
            self._actors.clear()
            await self._cluster.reopen()
            self._count_loss(Disconnected("the Ray cluster has ended, or its part on this machine"))
            return

        late = [number for number, actor in starting.items() if now >= actor.begun + LIMITS.start]
        if late and await self._cluster.has_room():
            for number in late:
                await self._cluster.kill(self._actors.pop(number).handle)
                self._count_loss(ConnectFailed(f"an actor on Ray did not start within {LIMITS.start:g} s"))
            return

        no_actor_works = len(starting) == len(self._actors)
        first_request = min(actor.begun for actor in starting.values())
        if no_actor_works and now >= first_request + LIMITS.room:
            raise ConnectFailed(
                f"no actor found a free CPU on Ray within {LIMITS.room:g} s; end other work there, or add machines "
                "(`ray status` shows both), then run the same command again"
            )

    async def _starting_actors(self) -> dict[int, _Actor]:
        """Return the actors that have not started, after noting those that have started meanwhile."""
        starting = {number: actor for number, actor in self._actors.items() if not actor.works}
        ready = await self._cluster.answered([actor.started for actor in starting.values()])
        for actor in starting.values():
            actor.works = actor.started in ready
        return {number: actor for number, actor in starting.items() if not actor.works}

    def _count_loss(self, error: ABPError) -> None:
        """Delay the next start. Raise ``error`` after too many losses in a row."""
        self._recycled["ended"] += 1
        logger.warning("a worker was lost: %s", error.message)

        # Several actors lost with the same machine count as one failure.
        if time.monotonic() < self._not_before:
            return
        self._failures += 1
        if self._failures >= LIMITS.failures:
            if isinstance(error, TransportError):
                raise type(error)(f"{error.message}, as {self._failures - 1} before it; {self._cluster.advice}")
            raise error
        self._not_before = time.monotonic() + backoff_delay(self._failures)

    async def _stop_actors(self) -> None:
        """Let the actors settle their jobs, for some seconds at most, and end them."""
        with contextlib.suppress(ConnectFailed):
            for actor in self._actors.values():
                await self._cluster.call_without_answer(actor.handle, "stop")

            # Actors that have not started have no jobs to settle.
            starting = await self._starting_actors()
            answers = [actor.answer for number, actor in self._actors.items() if number not in starting]
            deadline = time.monotonic() + LIMITS.stop
            while len(await self._cluster.answered(answers)) < len(answers) and time.monotonic() < deadline:
                await asyncio.sleep(0.1)

            for actor in self._actors.values():
                await self._cluster.kill(actor.handle)
