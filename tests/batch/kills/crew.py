"""The processes of a run, and which of them is killed next."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from tests.support.processes import processes

#: Seconds for one start of a command, at most.
_PATIENCE = 3600.0
#: Seconds after its start within which a worker may not have reached its ledger yet.
_EARLY = 15.0
#: Exit statuses of a worker whose run has ended.
_ENDED = (0, 3)


class Crew:
    """Commands that are started again as often as they are killed, until each has ended by itself."""

    def __init__(self, commands: Sequence[Sequence[str]], env: Mapping[str, str], log: Path, seed: int) -> None:
        self.starts = 0
        self.killed: Counter[str] = Counter()
        self.problems: list[str] = []
        #: Cleared while nothing may be started.
        self.may_start = asyncio.Event()
        self.may_start.set()
        #: Set when the run has its jobs: the first command brings them, the others would find none.
        self.has_jobs = asyncio.Event()
        self._commands, self._env, self._log = commands, env, log
        self._chance = random.Random(seed)
        self._running: dict[int, asyncio.subprocess.Process] = {}

    async def work(self) -> None:
        await asyncio.gather(*map(self._keep, range(len(self._commands))))

    async def _keep(self, number: int) -> None:
        if number:
            await self.has_jobs.wait()
        again = True
        while again:
            await self.may_start.wait()
            self.starts += 1
            started = time.monotonic()
            with self._log.open("ab") as log:
                process = await asyncio.create_subprocess_exec(
                    *self._commands[number], env=self._env, stdout=log, stderr=log, start_new_session=True
                )
            self._running[number] = process
            try:
                status = await asyncio.wait_for(process.wait(), _PATIENCE)
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
                del self._running[number]
            # one that the database's end found while it started has not reached it, and says so
            early = not self.may_start.is_set() and time.monotonic() - started < _EARLY
            again = status == -signal.SIGKILL.value or (early and status == 1)
        if status not in _ENDED:
            said = self._log.read_text(errors="replace")[-2000:]
            self.problems.append(f"{' '.join(self._commands[number])} ended with {status}: {said}")

    def kill(self, kind: str) -> bool:
        """Kill a ``worker`` by chance, or a ``browser`` or ``driver`` below one; whether there was any."""
        with suppress(psutil.Error):
            mains = [psutil.Process(process.pid) for process in self._running.values() if process.returncode is None]
            found = mains if kind == "worker" else [one for main in mains for one in processes(kind, main)]
            if found:
                self._chance.choice(found).kill()
                self.killed[kind] += 1
                return True
        return False


async def left_behind(folder: Path, seconds: float = 20.0) -> list[str]:
    """The processes that name ``folder`` in their arguments or their environment, once they had time to end."""
    end = asyncio.get_running_loop().time() + seconds
    while True:
        found = [" ".join(process.cmdline()[:3])[:120] for process in psutil.process_iter() if _names(process, folder)]
        if not found or asyncio.get_running_loop().time() > end:
            return found
        await asyncio.sleep(0.2)


def _names(process: psutil.Process, folder: Path) -> bool:
    with suppress(psutil.Error):
        if process.pid != psutil.Process().pid and process.status() != psutil.STATUS_ZOMBIE:
            return any(str(folder) in word for word in (*process.cmdline(), *process.environ().values()))
    return False
