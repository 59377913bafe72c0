"""A page whose browser refuses, hangs or is gone, for tests of what is recorded of it."""

from __future__ import annotations

import asyncio
import json
import zipfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace

SECRET = "canary-0815"
DEEP = '{"type": "deep", "x": ' + "[" * 3000 + "]" * 3000 + "}"


class FakePage:
    """A page whose browser does for each step what ``does`` says: nothing, an error, or no answer."""

    def __init__(self, **does: Exception | str) -> None:
        self._does = does
        self.stopped: list[str] = []
        self.listeners = 0
        tracing = SimpleNamespace(
            start=self._step("trace"), group=self._step("group"), stop=self._step("stop", self._trace),
            start_har=self._step("har", self._begin_har), stop_har=self._step("stop_har", self._har),
        )  # fmt: skip
        self.context = SimpleNamespace(tracing=tracing, cookies=self._step("cookies"))
        self.screencast = SimpleNamespace(start=self._step("video", self._begin_video), stop=self._step("stop_video"))
        self.screenshot = self._step("screenshot", self._picture)

    def _step(self, name: str, work: Callable[..., object] = lambda *_, **__: None) -> Callable[..., Awaitable[object]]:
        async def step(*given: object, **options: object) -> object:
            match self._does.get(name):
                case Exception() as error:
                    raise error
                case "hang":
                    await asyncio.Event().wait()
            self.stopped.append(name)
            return work(*given, **options) or []

        return step

    def on(self, event: str, handle: object) -> None:
        self.listeners += 1

    def remove_listener(self, event: str, handle: object) -> None:
        self.listeners -= 1

    async def evaluate(self, script: str) -> list[str]:
        return [SECRET]

    def _begin_har(self, path: Path, content: str) -> None:
        self._har_path = path

    def _begin_video(self, path: Path) -> None:
        path.write_bytes(b"video")

    def _har(self) -> None:
        url = f"http://app/?said={SECRET}"
        log = {"log": {"version": "1.2", "entries": [{"request": {"url": url}, "response": {"status": 200}}]}}
        self._har_path.write_text(json.dumps(log) if self._does.get("file") != "broken" else "{")

    def _trace(self, path: Path | None) -> None:
        if path is not None:
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("trace.trace", f'{{"type": "log", "message": "{SECRET}"}}\n{DEEP}\n\n[1')
                archive.writestr("resources/one.bin", b"\0" + SECRET.encode())

    def _picture(self, path: Path, timeout: float) -> None:
        path.write_bytes(b"picture")
