"""Draw a plot in JupyterLab by its WebMCP tools; keep the files: python examples/jupyterlab.py JUPYTER [FOLDER]

JUPYTER is the program `jupyter` of an environment with jupyterlab, jupyter-webmcp, ipykernel and matplotlib.
"""

import asyncio
import os
import secrets
import socket
import sys
import tempfile
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from transports import CallTimeout, CapabilityError, Session, connect

PLOT = """import matplotlib
matplotlib.use("agg")
from matplotlib import pyplot
pyplot.plot([1, 4, 9, 16])
pyplot.savefig("plot.png")"""


@asynccontextmanager
async def serve_jupyterlab(jupyter: str, folder: Path) -> AsyncIterator[str]:
    """Start a JupyterLab of our own for the files in ``folder``, and give its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    options = [f"--ServerApp.port={port}", f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={folder}"]
    own = {name: str(folder / ".own" / name) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR")}
    process = await asyncio.create_subprocess_exec(
        jupyter, "lab", "--no-browser", "--allow-root", "--ServerApp.port_retries=0", *options,
        cwd=folder, env={**os.environ, **own}, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        url = f"http://127.0.0.1:{port}"
        while not await asyncio.to_thread(_answers, f"{url}/api?token={token}"):
            if process.returncode is not None:
                raise SystemExit(f"{jupyter} lab ended with status {process.returncode}")
            await asyncio.sleep(0.2)
        yield f"{url}/lab?token={token}"
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False


async def download(app: Session, path: str, name: Path) -> Path:
    """Open a file in JupyterLab and have it downloaded, as a person would by the menu; return where it is saved."""
    await app.call("open_document", {"path": path})
    result = await app.call("execute_command", {"command_id": "docmanager:download"})
    return result.artifact().save_as(name)


async def run(app: Session, code: str, timeout: float = 60) -> object:
    """Add a cell to the notebook and run it; return the answer. An error of the kernel is a ``CapabilityError``."""
    added = await app.call("add_cell", {"notebookPath": "plot.ipynb", "content": code, "cellType": "code"})
    assert isinstance(added.data, dict)
    cell = {"notebookPath": "plot.ipynb", "cellId": added.data["cellId"]}
    return (await app.call("run_cell", cell, timeout=timeout)).data


async def main(jupyter: str, out: str = ".") -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with serve_jupyterlab(jupyter, Path(folder)) as url, connect(url, transport="webmcp", timeout=120) as app:
            print(f"{len(app.capabilities)} tools")
            await app.call("create_notebook", {"name": "plot"})
            await run(app, PLOT)
            await app.call("save_notebook", {"notebookPath": "plot.ipynb"})
            try:
                await run(app, "1/0")
            except CapabilityError as error:
                print(f"refused: {error.message}")
            for name in ("plot.png", "plot.ipynb"):
                print(await download(app, name, Path(out, name)))
            try:
                await run(app, "import time; time.sleep(60)", timeout=2)
            except CallTimeout:
                context = (await app.call("get_context")).data
                assert isinstance(context, dict)
                kernels = context["kernels"]
                assert isinstance(kernels, list) and isinstance(kernels[0], dict)
                await app.call("interrupt_kernel", {"kernelId": kernels[0]["id"]})
                print("a long cell was cancelled")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    asyncio.run(main(*sys.argv[1:]))
