"""``abp init``: templates of an app, a view, an adapter, tests for an app, and a settings file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated

import typer

from ...errors import UsageError
from ._options import Json
from ._output import print_json, print_text
from ._params import shell_word

#: Suffix of stored templates whose own suffix would make them modules of this package.
_STORED_SUFFIX = ".txt"
#: Target in the templates, which ``--target`` replaces.
_TARGET = "http://127.0.0.1:8000/"
# Commands to copy have no comments: zsh takes none at its prompt.
_AFTER_APP = """\
Next:
  cd {folder}
  pip install 'abp-transports[test]'
  python serve.py 8001 &
  pytest
  abp call http://127.0.0.1:8001/ notes.pdf
  abp conformance http://127.0.0.1:8001/"""
_AFTER_VIEW = """\
Next:
  cd {folder}
  pip install 'abp-transports[mcp,test]'
  pytest
  abp view 'mcp+stdio:python server.py' greet -p name=Ada --screenshot card.png
  abp conformance 'mcp+stdio:python server.py'"""
_AFTER_ADAPTER = """\
Next:
  cd {folder}
  pip install 'abp-transports[test]'
  python -m http.server 8001 --bind 127.0.0.1 &
  pytest
  abp call http://127.0.0.1:8001/page.html table.csv --adapter table.js"""
_AFTER_TESTS = """\
Next; with --abp-headed, pytest shows the browser:
  cd {folder}
  pip install 'abp-transports[test]'
  pytest"""
_AFTER_CONFIG = """\
Next, edit abp.toml, which explains itself; an editor with TOML completes it by abp.schema.json.
Then confirm that the file is yours:
  cd {folder}
  abp mcp --trust"""

app = typer.Typer(
    help="Write a first app, view, adapter, test or settings file.", add_completion=False, rich_markup_mode=None
)
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.", show_default=False)]


@app.command("app")
def init_app(folder: Folder, as_json: Json = False) -> int:
    """Write a small app that speaks ABP into a folder.

    Its server and its tests come with it."""
    return _write_project("new_app", folder, _AFTER_APP, as_json=as_json)


@app.command("view")
def init_view(folder: Folder, as_json: Json = False) -> int:
    """Write an MCP server with a tool and its view into a folder.

    A test of the view comes with it."""
    return _write_project("new_view", folder, _AFTER_VIEW, as_json=as_json)


@app.command("adapter")
def init_adapter(folder: Folder, as_json: Json = False) -> int:
    """Write an adapter, which makes an app of any page, into a folder.

    A page to try it on and a test come with it."""
    return _write_project("new_adapter", folder, _AFTER_ADAPTER, as_json=as_json)


@app.command("tests")
def init_tests(
    folder: Folder,
    target: Annotated[str, typer.Option("--target", metavar="TARGET", help="The app.")] = _TARGET,
    as_json: Json = False,
) -> int:
    """Write tests of an existing app into a folder."""
    return _write_project("new_tests", folder, _AFTER_TESTS, as_json=as_json, target=target)


@app.command("config")
def init_config(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="The folder (default: this one).")] = Path(),
    as_json: Json = False,
) -> int:
    """Write abp.toml, a settings file, and its schema.

    Every setting is explained in it, and none is set."""
    return _write_project("new_config", folder, _AFTER_CONFIG, as_json=as_json, allow_files=True)


def _write_project(
    kind: str, folder: Path, next_steps: str, *, as_json: bool, target: str = _TARGET, allow_files: bool = False
) -> int:
    """Write the templates of a ``kind`` into a folder and print what to do next.

    ``target`` replaces the target in the templates. With ``allow_files`` the folder may have other files. Raises
    :class:`~transports.errors.UsageError` rather than overwrite a file."""
    if not allow_files and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists and is not an empty folder; name a new one")
    templates = dict(_find_templates(files(__package__) / kind))
    for name in templates:
        if (folder / name).exists():
            raise UsageError(f"{folder / name} exists; move it away first")

    json_target = json.dumps(target, ensure_ascii=False).encode()
    try:
        for name, source in templates.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            content = source.read_bytes()
            if target != _TARGET:
                content = content.replace(json.dumps(_TARGET).encode(), json_target)
            path.write_bytes(content)
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be written ({error.strerror}); make room or the folder writable, or name another folder"
        ) from error

    if as_json:
        print_json({"success": True, "folder": str(folder.absolute()), "files": [*templates]})
    else:
        for name in templates:
            print_text(f"File saved: {folder / name}")
        steps_from_here = next_steps
        if folder == Path():
            steps_from_here = next_steps.replace("  cd {folder}\n", "")
        print_text(steps_from_here.format(folder=shell_word(str(folder))))
    return 0


def _find_templates(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, Traversable]]:
    """Yield the name of each template, relative to the new folder, and the stored file."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _find_templates(entry, f"{prefix}{entry.name}/")
        else:
            yield prefix + entry.name.removesuffix(_STORED_SUFFIX), entry
