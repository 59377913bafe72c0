"""Whether ``abp batch run`` keeps its limits against real servers: five hosts, one that refuses and one that hangs.

``python -m tests.batch.rates --seconds 60`` prints what the hosts have seen. ``test_limits.py`` holds the clock.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.batch.kills.apps import SocketApp
from transports import CapabilityError
from transports.memory import Call

__all__ = ["most_in"]

#: Calls a second that the host that refuses allows, and the seconds that it asks to wait.
_ALLOWED, _PAUSE = 5, 1.0
#: Seconds for the answer of the host that hangs.
_TIMEOUT = 5.0


@dataclass
class Host(SocketApp):
    """An app that takes ``seconds`` for a call, and notes when each came and how many it had at once."""

    seconds: float = 0.0
    allowed: int | None = None
    sent: list[float] = field(default_factory=list)
    served_at: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    most: int = 0
    #: Seconds of work: of two calls at once both count.
    busy: float = 0.0
    _at_work: int = 0

    def __post_init__(self) -> None:
        super().__init__()

    async def _count(self, params: Mapping[str, object], _: Call) -> object:
        began = time.monotonic()
        self.sent.append(began)
        self._at_work += 1
        self.most = max(self.most, self._at_work)
        try:
            await asyncio.sleep(self.seconds)
            now = time.monotonic()
            if self.allowed and len(self.served_at) - bisect_left(self.served_at, now - 1.0) >= self.allowed:
                self.refused.append(now)
                raise CapabilityError("later", code="RATE_LIMITED", retryable=True, retry_after=_PAUSE)
            self.served_at.append(now)
            return {"n": params["n"]}
        finally:
            self._at_work -= 1
            self.busy += time.monotonic() - began


def most_in(times: Sequence[float], seconds: float) -> int:
    """The most of ``times``, which are sorted, that any stretch of so many seconds has."""
    return max((bisect_left(times, start + seconds) - at for at, start in enumerate(times)), default=0)


async def keep_limits(folder: Path, seconds: float, rate: float, per_host: int, concurrency: int) -> dict[str, object]:
    """Run for ``seconds`` and return what the hosts have seen."""
    hosts = {
        "fast, 5 ms": Host(seconds=0.005),
        "middle, 50 ms": Host(seconds=0.05),
        "slow, 400 ms": Host(seconds=0.4),
        f"refuses above {_ALLOWED} a second": Host(seconds=0.005, allowed=_ALLOWED),
        "hangs": Host(seconds=3600.0),
    }
    jobs, each = folder / "jobs.jsonl", int(rate * seconds)
    async with AsyncExitStack() as stack:
        urls = {name: await stack.enter_async_context(host.served()) for name, host in hosts.items()}
        with jobs.open("w") as file:
            for n in range(each):
                for name, url in urls.items():
                    more = {"timeout": _TIMEOUT} if name == "hangs" else {}
                    job = {"target": url, "capability": "count", "params": {"n": n}, **more}
                    file.write(json.dumps(job) + "\n")
        options = {"concurrency": concurrency, "per-host": per_host, "rate": rate, "deadline": seconds}
        command = [sys.executable, "-m", "transports.surfaces.cli", "batch", "run", str(jobs), "--out"]
        command += [
            str(folder / "run"),
            "--store",
            "none:",
            "-q",
            *(f"--{name}={value}" for name, value in options.items()),
        ]
        env = {key: value for key, value in os.environ.items() if not key.startswith("ABP_")}
        process = await asyncio.create_subprocess_exec(*command, env=env)
        try:
            await asyncio.wait_for(process.wait(), seconds * 10 + 60)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    manifest = map(json.loads, (folder / "run" / "manifest.jsonl").read_text().splitlines())
    states = Counter((line["target"], line["status"]) for line in manifest if line["status"] != "queued")
    sent = sorted(moment for host in hosts.values() for moment in host.sent)
    lasted = sent[-1] - sent[0]
    return {
        "of the rate": round(len(sent) / lasted / rate, 3),
        "of the rate, at most in": {f"{n} s": round(most_in(sent, n) / n / rate, 3) for n in (1, 2, 5, 10)},
        "hosts": {
            name: {
                "sent": len(host.sent),
                "a second": round(len(host.sent) / lasted, 1),
                "at once": host.most,
                "of its limit": round(host.busy / lasted / per_host, 3),
                **({"refused": len(host.refused), "sent in its pauses": _too_early(host)} if host.refused else {}),
                **{status: count for (url, status), count in states.items() if url == urls[name]},
            }
            for name, host in hosts.items()
        },
    }


def _too_early(host: Host) -> int:
    """Calls that came after a refusal must have reached the run, and before the end of the pause that it asked for."""
    heard = 0.1
    return sum(any(at + heard < moment < at + _PAUSE for at in host.refused) for moment in host.sent)


def main() -> None:
    """Run it and print what it came to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--per-host", type=int, default=4)
    parser.add_argument("--concurrency", type=int, default=20)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(keep_limits(Path(folder), args.seconds, args.rate, args.per_host, args.concurrency))
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
