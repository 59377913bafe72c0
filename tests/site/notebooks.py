"""Notebooks of ``examples/notebooks``: executed where nothing else is, and as pages of the site.

An execution has real outputs, so no notebook keeps any: paths of a machine would be among them. A page holds no data
URLs; pictures are files beside it.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[2]
_EXAMPLES = _ROOT / "examples"
#: Notebooks by their paths, and the pages of the site that are made of them.
NOTEBOOKS = {
    f"examples/notebooks/{path.name}": f"notebooks/{path.stem.replace('_', '-')}.md"
    for path in sorted((_EXAMPLES / "notebooks").glob("*.ipynb"))
}
#: Seconds that the kernel may take to start, and a cell to run.
_START, _CELL = 120, 180
_DATA_URL = re.compile(r'src="data:image/(png|jpeg|gif|webp);base64,([^"]*)"')
#: Links to files of the execution, which are not on the site.
_LINK = re.compile(r"<a href=[^>]*>(.*?)</a>")


def read(path: str) -> Any:
    """Return a notebook by its path in the project."""
    return import_module("nbformat").read(_ROOT / path, as_version=4)  # whose functions have no types


def execute(path: str) -> Any:
    """Run a notebook in a folder of its own, beside copies of the other examples, and return it with its outputs.

    Raises ``nbclient.exceptions.CellExecutionError`` with the traceback of a cell."""
    from nbclient import NotebookClient

    notebook = read(path)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, jupyter_in(Path(folder, "jupyter")):
        examples = Path(folder, "examples")
        shutil.copytree(_EXAMPLES, examples, ignore=shutil.ignore_patterns("__pycache__"))
        client = NotebookClient(
            notebook,
            timeout=_CELL,
            startup_timeout=_START,
            kernel_name="python3",
            extra_arguments=["--log-level=ERROR"],
            resources={"metadata": {"path": str(examples / "notebooks")}},
        )
        client.execute(env={**os.environ, "PYTHONPATH": str(_ROOT)})
    return notebook


@contextmanager
def jupyter_in(folder: Path) -> Iterator[None]:
    """Keep the files of Jupyter in a folder, and not in the user's home."""
    folder.mkdir()
    names = ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
    folders = {name: str(folder / name.lower()) for name in names}
    before = {name: os.environ.get(name) for name in folders}
    os.environ.update(folders)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def page(notebook: Any, path: Path) -> str:
    """Return a notebook as Markdown for a page at ``path``. Pictures of outputs are written beside it."""
    parts = [f"{cell.source}\n" if cell.cell_type == "markdown" else _code(cell, path) for cell in notebook.cells]
    return "\n".join(parts)


def _code(cell: Any, path: Path) -> str:
    outputs = [_output(output, path.with_name(f"{path.stem}-{cell.id}")) for output in cell.outputs]
    return "\n".join([f"```python\n{cell.source}\n```\n", *outputs])


def _output(output: Any, beside: Path) -> str:
    """Return one output: its HTML if it has any, or its text."""
    data = output.get("data", {})
    if "text/html" in data:
        html = _DATA_URL.sub(partial(_as_file, beside), _LINK.sub(r"\1", "".join(data["text/html"])))
        return f'<div class="output">\n{html}\n</div>\n'
    text = output.get("text") or data.get("text/plain") or "\n".join(output.get("traceback", []))
    return f"```text\n{''.join(text).rstrip()}\n```\n"


def _as_file(beside: Path, picture: re.Match[str]) -> str:
    content = base64.b64decode(picture[2])
    number = len([*beside.parent.glob(f"{beside.name}-*")])
    file = beside.with_name(f"{beside.name}-{number}.{picture[1]}")
    file.write_bytes(content)
    return f'src="{file.name}"'
