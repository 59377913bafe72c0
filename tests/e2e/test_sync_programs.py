"""The blocking API in a program of its own: Ctrl-C, fork, exit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = """
import asyncio, os, sys, threading
from transports import MemoryTransport
from transports.sync import connect

class App(MemoryTransport):
    async def aclose(self):
        await super().aclose()
        print("closed", list(self.cancelled.values()), flush=True)

async def forever(params, call):
    print("running", flush=True)
    await asyncio.sleep(3600)

async def quick(params, call):
    return {"ok": True}

session = connect("memory:", transport=App({"forever": forever, "quick": quick}), store="none:")
"""


def program(code: str, *flags: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, *flags, "-c", PROGRAM + code], stdout=pipe, stderr=pipe, text=True)


def ended(code: str, *flags: str) -> tuple[str, str]:
    """Run a program to its end, which must be a good one, and return its output and its errors."""
    with program(code, *flags) as run:
        out, err = run.communicate(timeout=30)
    assert run.returncode == 0 and "Traceback" not in err, err
    return out, err


def test_ctrl_c_cancels_the_call_and_forgotten_sessions_are_closed_newest_first_before_threads_shut_down() -> None:
    """They are closed although their warnings are errors."""
    code = """
import gc

class Older(App):
    async def aclose(self):
        await super().aclose()
        print("the older one", flush=True)

class Threads(App):
    async def aclose(self):
        await super().aclose()
        await asyncio.to_thread(print, "in a thread", flush=True)

try:
    with session as app:
        app.call("forever")
except KeyboardInterrupt:
    print("interrupted", [thread.name for thread in threading.enumerate()], flush=True)

forgotten = connect("memory:", transport=App({"quick": quick}), store="none:").open()
del forgotten
gc.collect()
for thread in threading.enumerate():
    if thread.name == "abp-sync":
        thread.join(10)
print("collected", flush=True)

older = connect("memory:", transport=Older({"quick": quick}), store="none:").open()
newer = connect("memory:", transport=Threads({"quick": quick}), store="none:").open()
print(newer.call("quick").data, flush=True)
"""
    with program(code, "-W", "error::ResourceWarning") as run:
        assert run.stdout and run.stdout.readline() == "running\n"
        started = time.monotonic()
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=30)
    interrupted, collected, closed = out.partition("closed []\ncollected\n")
    assert interrupted == "closed ['cancelled by the client']\ninterrupted ['MainThread']\n", err
    assert collected and closed == "{'ok': True}\nclosed []\nin a thread\nclosed []\nthe older one\n", err
    assert err.count("> was not closed") == 1  # of the collected one
    assert run.returncode == 0 and time.monotonic() - started < 15


@pytest.mark.slow
def test_thread_uses_and_opens_sessions_after_main_thread_ended() -> None:
    code = """
import time

app = session.open()
def work():
    threading.main_thread().join()
    print(app.call("quick").data, flush=True)
    time.sleep(0.1)
    with connect("memory:", transport=MemoryTransport({"quick": quick}), store="none:") as other:
        print("other", other.call("quick").data, flush=True)
threading.Thread(target=work).start()
"""
    out, err = ended(code)
    assert out == "{'ok': True}\nother {'ok': True}\nclosed []\n"
    assert "ResourceWarning" not in err


@pytest.mark.slow
def test_second_ctrl_c_ends_wait_but_not_closing() -> None:
    code = """
class Slow(App):
    async def aclose(self):
        print("closing", flush=True)
        await asyncio.sleep(1)
        await super().aclose()

with connect("memory:", transport=Slow({"forever": forever}), store="none:") as app:
    app.call("forever")
"""
    with program(code) as run:
        for line in ("running\n", "closing\n"):
            assert run.stdout and run.stdout.readline() == line
            run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=30)
    assert out == "closed ['cancelled by the client']\n", err
    assert err.count("\nKeyboardInterrupt") == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork: this system has none")
def test_forked_process_gets_new_loop_and_cannot_use_parent_session() -> None:
    code = """
app = session.open()
def use(name, work):
    try:
        print(name, work(), flush=True)
    except Exception as error:
        print(name, type(error).__name__, "belongs to the process that opened it" in str(error), flush=True)
def child():
    use("call", lambda: app.call("quick").data)
    use("start", lambda: app.start("quick"))
    use("events", lambda: app.events().__enter__())
    with connect("memory:", transport=MemoryTransport({"quick": quick}), store="none:") as other:
        print("child", other.call("quick").data, flush=True)
    app.close()  # the parent's: nothing happens
    print(app.info.name and "ended", flush=True)
sys.stdout.flush()
if not (pid := os.fork()):
    child()
    sys.exit()
print(os.waitpid(pid, 0)[1], app.call("quick").data, flush=True)
"""
    out, err = ended(code, "-W", "default::ResourceWarning")
    refused = "call UsageError True\nstart UsageError True\nevents UsageError True\n"
    assert out == f"{refused}child {{'ok': True}}\nended\n0 {{'ok': True}}\nclosed []\n", err
    assert "destroyed" not in err and err.count("> was not closed") == 1  # of the parent's, at its end


@pytest.mark.slow
def test_session_opened_while_program_ends_raises_typed_error(tmp_path: Path) -> None:
    code = f"""
import atexit
from transports.errors import StoreUnavailable

def store_more():
    try:
        with connect("memory:", transport=App({{"quick": quick}}), store={str(tmp_path)!r}) as app:
            app.call("quick")
    except StoreUnavailable as error:
        print(error.message, flush=True)

atexit.register(store_more)
with session as app:
    app.call("quick")
    """
    out, _ = ended(code)
    assert "cannot store a file" in out and "interpreter shutdown" in out
