"""What somebody writes who has no ``abp batch``: the jobs of a file in so many sessions of one browser.

``python -m tests.benchmarks.by_hand URL JOBS FOLDER SESSIONS``"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from transports import Browser, connect, open_store


async def main(url: str, jobs: str, folder: str, sessions: int) -> None:
    out = Path(folder)
    async with open_store(out / "files") as store:
        with Path(jobs).open() as lines, (out / "done.jsonl").open("w") as done:

            async def work(browser: Browser) -> None:
                async with connect(url, browser=browser, store=store) as app:
                    for line in lines:
                        job = json.loads(line)
                        result = await app.call(job["capability"], job["params"])
                        files = [ref.sha256 for ref in result.artifacts.values()]
                        done.write(json.dumps({"id": job["id"], "files": files}) + "\n")

            async with Browser() as browser:
                await asyncio.gather(*(work(browser) for _ in range(sessions)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
