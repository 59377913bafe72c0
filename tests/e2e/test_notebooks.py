"""Notebooks: those of the examples run and show what they should, and a kernel leaves nothing behind."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from tests.e2e.test_cli_browser import workbench as workbench
from tests.site.notebooks import NOTEBOOKS, execute, jupyter_in, page
from tests.support.processes import processes, still_running

pytestmark = [pytest.mark.browser, pytest.mark.slow]
Kernel = tuple[KernelManager, BlockingKernelClient]
ROOT = Path(__file__).parents[2]
#: What the outputs of each notebook show, in order.
SHOWN = {
    "first_steps": (
        "<strong>Workbench</strong>",
        "chart.render",
        "parameter",
        "<img",
        "application/pdf",
        "<img",
        "text/csv",
        "month,sum",
        "&quot;coffee&quot;: 30",
        "<progress",
        "8 of 8",
        "<img",
        "did you mean export.pdf",
        "closed",
    ),
    "batches_and_views": (
        "<progress",
        "13 of 13 · 1 failed",
        "13 jobs",
        "succeeded",
        "manifest.jsonl",
        "<img",
        "[INVALID_PARAMS]",
        "votes.csv",
        "ui://poll/bars.html",
        "<img",
        "closed",
    ),
}


@pytest.mark.parametrize("name", [Path(path).stem for path in NOTEBOOKS])
def test_example_notebook_runs_and_shows_its_objects(name: str, tmp_path: Path) -> None:
    before = processes()
    notebook = execute(f"examples/notebooks/{name}.ipynb")
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert [output for output in outputs if output.get("name") == "stderr"] == []
    html = "\n".join(output.get("text") or "".join(output["data"].get("text/html", "")) for output in outputs)
    at = 0
    for words in SHOWN[name]:
        at = html.find(words, at)
        assert at >= 0, words
        at += len(words)
    # A browser that other tests share starts and ends processes of its own meanwhile.
    left = {process for process in processes() if process not in before and process.parent() not in before}
    assert left == set()
    text = page(notebook, tmp_path / "page.md")
    assert "data:" not in text and not re.search(r"<(script|a|link|style)\b", text)
    for machine in (str(ROOT), tempfile.gettempdir(), str(Path.home())):
        assert machine not in text
    pictures = re.findall(r'src="([^"]*)"', text)
    assert pictures and all((tmp_path / name).stat().st_size > 500 for name in pictures)


@contextmanager
def kernel(folder: Path) -> Iterator[Kernel]:
    """A kernel whose working folder is ``folder``, and a client of it."""
    with jupyter_in(folder / "jupyter"):
        manager = KernelManager(kernel_name="python3")
        manager.start_kernel(cwd=str(folder), env={**os.environ, "PYTHONPATH": str(ROOT)})
        client = manager.client()
        client.start_channels()
        try:
            client.wait_for_ready(timeout=60)
            yield manager, client
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)
            manager.cleanup_resources()


def run(client: BlockingKernelClient, code: str) -> str:
    """Run a cell, and return what it prints."""
    printed: list[str] = []

    def keep(message: Any) -> None:
        if message["msg_type"] == "stream":
            printed.append(message["content"]["text"])

    reply = client.execute_interactive(code, timeout=60, output_hook=keep)
    content = reply["content"]
    assert content["status"] == "ok", content.get("traceback", content)
    return "".join(printed)


OPENED = """
import os
from transports import connect
import transports.sync
app = await connect({url!r}, store="out")
other = transports.sync.connect({url!r}, store="out").open()
print(os.getpid(), len((await app.call("file.generate", {{"megabytes": 2}})).artifacts))
"""


def opened(client: BlockingKernelClient, url: str) -> tuple[str, list[psutil.Process]]:
    """Open sessions in a kernel, and return its process id and the processes that it has started."""
    pid, count = run(client, OPENED.format(url=url)).split()
    family = psutil.Process(int(pid)).children(recursive=True)
    assert count == "1" and len(family) > 2 and folders_of(pid)
    return pid, family


def test_kernel_restart_or_exit_leaves_no_processes(workbench: str, tmp_path: Path) -> None:
    with kernel(tmp_path) as (manager, client):
        pid, family = opened(client, workbench)
        manager.restart_kernel(now=False)
        client.wait_for_ready(timeout=60)
        assert run(client, "print('app' in globals())") == "False\n"
        assert still_running(family, 30) == []
        assert folders_of(pid) == []
        pid, family = opened(client, workbench)
        manager.shutdown_kernel(now=False)
        assert still_running(family, 30) == []
        assert folders_of(pid) == []


def folders_of(pid: str) -> list[Path]:
    """Temporary folders of the browsers of a process."""
    bases = {Path(tempfile.gettempdir()), Path("/tmp")}
    return [folder for base in bases for folder in base.glob(f"abp-run-{pid}-*")]


@pytest.fixture(scope="module")
def connected_kernel(workbench: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """A kernel with an open session ``app``, which needs no browser."""
    with kernel(tmp_path_factory.mktemp("kernel")) as (manager, client):
        url = workbench.replace("http", "ws") + "abp"
        run(client, f'from transports import connect\napp = await connect({url!r}, store="out")')
        yield manager, client
        run(client, "await app.aclose()")


RUNS = 'await app.call("job.run", {"steps": 9999}, timeout=600, on_progress=lambda _: print("runs", flush=True))'
#: Prints what became of the call in the app, once it is over.
STATE = """
import asyncio
async def state():
    calls = (await app.call("app.record")).data["calls"]
    return [call["state"] for call in calls if call["capability"] == "job.run"][-1]
while await state() == "running":
    await asyncio.sleep(0.02)
print(await state())
"""


def test_interrupted_cell_cancels_its_call_and_session_continues(connected_kernel: Kernel) -> None:
    manager, client = connected_kernel
    running = client.execute(RUNS)
    while (message := client.get_iopub_msg(timeout=60))["msg_type"] != "stream":
        assert message["msg_type"] != "error", message["content"]
    manager.interrupt_kernel()
    while (reply := client.get_shell_msg(timeout=60))["parent_header"]["msg_id"] != running:
        pass
    assert reply["content"]["status"] == "error"
    assert run(client, STATE) == "cancelled\n"
