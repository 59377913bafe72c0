"""The blocking names of :mod:`transports.batch`."""

from __future__ import annotations

from ..batch import pool
from ..batch.pool import PoolStats
from .bridge import blocking, described, iterating, taking_parameters_of
from .lifetime import Resource, closing

__all__ = ["Pool"]


class Pool(Resource[pool.Pool]):
    """Sessions and browsers for many calls at once; see :class:`transports.batch.Pool`::

        with Pool(browsers=2) as pool:
            for outcome in pool.map(jobs): ...

    ``store=`` and ``connect=`` are those of :mod:`transports`. Jobs are read in the loop's own thread.
    """

    @taking_parameters_of(pool.Pool)
    def __init__(self, wrapped: pool.Pool) -> None:
        super().__init__(wrapped)

    call = blocking(pool.Pool.call)
    run = blocking(pool.Pool.run)
    map = iterating(pool.Pool.map)
    close = closing(pool.Pool.aclose)

    @property
    def size(self) -> int:
        """How many calls the pool makes at once."""
        return self.wrapped.size

    @described(pool.Pool.stats)
    def stats(self) -> PoolStats:
        """As :meth:`transports.batch.Pool.stats`, whose docstring replaces this one."""

        async def look() -> PoolStats:
            return self.wrapped.stats()

        return self._runner.run(look())
