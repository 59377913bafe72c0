"""Blocking names of :mod:`transports.batch`."""

from __future__ import annotations

import os
from typing import TypeAlias

from .. import batch
from ..batch._batch import Source, ignore
from ..batch._files import Report
from ..batch._fleet import PoolStats
from ..batch._runner import Driver as AsyncDriver, OnSettled, RunOptions
from ..session._call import OnProgress
from ._bridge import (
    Blocking,
    Resource,
    blocking,
    blocking_function,
    closing,
    iterating,
    taking_parameters_of,
    with_docstring_of,
)

__all__ = ["Pool", "run"]


class Pool(Resource[batch.Pool]):
    """Blocking pool of sessions and browsers for concurrent calls; see :class:`transports.batch.Pool`::

        with Pool(browsers=2) as pool:
            for outcome in pool.map(jobs): ...

    ``store=`` and ``connect=`` are those of :mod:`transports`. Jobs are read in the loop's own thread.
    """

    @taking_parameters_of(batch.Pool)
    def __init__(self, wrapped: batch.Pool) -> None:
        super().__init__(wrapped)

    call = blocking(batch.Pool.call)
    run = blocking(batch.Pool.run)
    map = iterating(batch.Pool.map)
    close = closing(batch.Pool.aclose)

    @property
    def closed(self) -> bool:
        """True if the pool is not open, before or after its use."""
        return self.wrapped.closed

    @property
    def size(self) -> int:
        """Maximum number of concurrent calls."""
        return self.wrapped.size

    @with_docstring_of(batch.Pool.stats)
    def stats(self) -> PoolStats:
        """Return :meth:`transports.batch.Pool.stats`, whose docstring replaces this one."""

        # In the loop, where nothing changes meanwhile.
        async def look() -> PoolStats:
            return self.wrapped.stats()

        return self._runner.run(look())


Driver: TypeAlias = Pool | AsyncDriver
_run = blocking_function(batch.run)


@with_docstring_of(batch.run)
def run(
    jobs: Source,
    out: str | os.PathLike[str],
    *,
    pool: Driver | None = None,
    target: str | None = None,
    extend: bool = False,
    options: RunOptions | None = None,
    on_settled: OnSettled = ignore,
    on_progress: OnProgress | None = None,
    allow_programs: bool = False,
    files_from: str | os.PathLike[str] | None = None,
) -> Report:
    """Run :func:`transports.batch.run`, whose docstring replaces this one."""
    __tracebackhide__ = True
    driver = pool.wrapped if isinstance(pool, Blocking) else pool
    return _run(
        jobs,
        out,
        pool=driver,
        target=target,
        extend=extend,
        options=options,
        on_settled=on_settled,
        on_progress=on_progress,
        allow_programs=allow_programs,
        files_from=files_from,
    )
