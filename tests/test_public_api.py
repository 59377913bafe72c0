"""The names that ``transports`` gives away, and what it costs to import them."""

import ast
import importlib.metadata
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

import transports
from tests.support.rows import each_row
from transports import artifacts, batch, errors, routing, sync, testing

HEAVY = {
    "playwright",
    "aiohttp",
    "mcp",
    "pydantic",
    "pydantic_core",
    "rich.progress",
    "websockets",
    "PIL",
    "uvicorn",
    "starlette",
}

#: Where ``Any`` is what is meant, and why.
ANY = {
    "Call.elicit": "an app reads an answer whose shape the method decides: answer['data']['value']",
    "MemoryTransport.ask": "likewise",
}


def loaded_in_turn(*codes: str) -> list[set[str]]:
    """The modules that a fresh interpreter has loaded after each of ``codes``, one after the other."""
    steps = "\n".join(f"{code}\nfound.append(sorted(sys.modules))" for code in codes)
    script = f"import sys\nfound = []\n{steps}\nimport json\nprint(json.dumps(found))"
    own = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}  # it imports, too
    done = subprocess.run(
        [sys.executable, "-c", script], env=own, capture_output=True, text=True, check=True, timeout=60
    )
    return [*map(set, json.loads(done.stdout))]


def loaded_by(code: str) -> set[str]:
    (loaded,) = loaded_in_turn(code)
    return loaded


@pytest.mark.load
@pytest.mark.requirement("R5-1d")
def test_imports_load_only_what_they_need() -> None:
    package, client, blocking, session = loaded_in_turn(
        "import transports",
        "from transports import connect",
        "from transports.sync import connect",
        "from transports import MemoryTransport, connect\nconnect('memory:', transport=MemoryTransport({}))",
    )
    assert not package & HEAVY
    assert {name for name in package if name.startswith("transports")} == {
        "transports",
        "transports._internal",
        "transports._internal.lazy",
    }
    homes = {"adapters.recording", "artifacts.objects", "protocol._declarations", "protocol._payloads", "surfaces"}
    late = {*HEAVY, "pydantic_settings", "typer", "obstore", *(f"transports.{home}" for home in homes)}
    assert not late & blocking
    beside = {"jsonschema_rs", "pathvalidate", "email"}  # a session loads them while its transport opens
    later = {"importlib.metadata", "psutil", "yarl", "tomllib"}
    assert not (late | beside | later) & client
    assert not [name for name in client if name.startswith("transports.routing.http.")]  # its door alone loads nothing
    assert not session & {"playwright", "mcp", "rich", "typer"}


STUBS = sorted(Path(transports.__file__).parent.rglob("*.pyi"))


@pytest.mark.requirement("R5-1c")
@each_row("stub", STUBS)
def test_package_exports_exactly_names_in_its_stub(stub: Path) -> None:
    package = ".".join(("transports", *stub.parent.relative_to(Path(transports.__file__).parent).parts))
    module = importlib.import_module(package)
    imports = [node for node in ast.parse(stub.read_text(encoding="utf-8")).body if isinstance(node, ast.ImportFrom)]
    names = [alias.name for node in imports for alias in node.names]
    assert module.__all__ == dir(module) == sorted(names)
    assert all(hasattr(module, name) for name in names)


def test_version_matches_distribution() -> None:
    assert transports.__version__ == importlib.metadata.version("abp-transports")


def test_unknown_public_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'conect'"):
        transports.conect  # type: ignore[attr-defined]  # noqa: B018 - a type checker sees it, too
    with pytest.raises(ImportError):
        exec("from transports import conect")


def test_cli_starts_without_importing_work_modules_and_completes_a_name_without_commands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("_ABP_COMPLETE", "complete_fish")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "abp c")
    completing = """if True:
        import contextlib, sys
        from transports.surfaces.cli import main

        with contextlib.redirect_stdout(sys.stderr):
            main([])"""
    modules, completed = loaded_in_turn("import transports.surfaces.cli._commands", completing)
    assert "transports.surfaces.cli._commands" in modules
    assert not completed & {"transports.surfaces.cli._calls", "transports.surfaces.cli._detached"}
    assert not modules & (
        HEAVY
        | {"transports.session._session", "transports.playwright._source", "importlib.metadata", "jsonschema_rs"}
        | {"prompt_toolkit", "asyncio", "msgspec", "hashlib"}
    )


@pytest.mark.slow
def test_cli_starts_driver_before_importing_session() -> None:
    program = """if True:
        import json, os, socket, sys
        from transports.playwright import _process as _browser_process
        from transports.surfaces.cli import main

        assert _browser_process._LEAD
        _browser_process._LEAD = 60  # on a busy machine the driver takes longer, and imports go on beside it

        def stop(event, _):
            if event == "subprocess.Popen":
                print(json.dumps([sorted(sys.modules)]), flush=True)
                os._exit(0)

        sys.addaudithook(stop)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            main(["call", f"http://127.0.0.1:{listening.getsockname()[1]}/", "name"])"""
    modules = loaded_by(program)
    assert "playwright.async_api" in modules
    assert not modules & {"transports.session._connect", "transports.artifacts._base", "transports.routing._router"}


@pytest.mark.slow
def test_a_session_loads_its_models_while_its_transport_opens() -> None:
    program = """if True:
        import asyncio, sys
        from transports import MemoryTransport, connect

        class Waiting(MemoryTransport):
            async def open(self):
                assert "pydantic" not in sys.modules
                async with asyncio.timeout(15):
                    while not hasattr(sys.modules.get("transports.protocol._payloads"), "Progress"):
                        await asyncio.sleep(0.01)
                await super().open()

        async def main():
            async with connect("memory:", transport=Waiting({}), store="none:"):
                pass

        asyncio.run(main())"""
    assert "pydantic" in loaded_by(program)


# --- documentation and annotations ------------------------------------------------------------------------------------


def public() -> Iterator[tuple[str, object]]:
    for module in (transports, artifacts, batch, errors, routing, sync, testing):
        for name in module.__all__:
            yield name, getattr(module, name)


def functions() -> Iterator[tuple[str, object]]:
    """Public functions, and the public methods that public classes define themselves."""
    for name, value in public():
        if inspect.isfunction(value):
            yield name, value
        elif inspect.isclass(value):
            for attribute, member in vars(value).items():
                inner = getattr(member, "__func__", getattr(member, "fget", member))
                wanted = not attribute.startswith("_") or attribute in ("__init__", "__call__", "__aenter__")
                if wanted and inspect.isfunction(inner) and inner.__module__.startswith("transports"):
                    yield f"{value.__name__}.{attribute}", inner


def test_everything_public_has_a_docstring_of_its_own() -> None:
    for name, value in public():
        if inspect.isclass(value) or inspect.isfunction(value):
            own = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
            assert own, f"{name} has no docstring"
            assert not own.startswith(f"{name}("), f"{name} has a docstring that a dataclass made"
        for attribute, member in vars(value).items() if inspect.isclass(value) else ():
            if not attribute.startswith("_") and isinstance(member, FunctionType | classmethod | property):
                assert inspect.getdoc(getattr(value, attribute)), f"{name}.{attribute} has no docstring"


def test_only_listed_functions_use_any() -> None:
    found = {
        name
        for name, function in functions()
        if any(re.search(r"\bAny\b", str(annotation)) for annotation in inspect.get_annotations(function).values())  # type: ignore[arg-type]
    }
    assert found == set(ANY)


@pytest.mark.parametrize("function", [transports.connect, sync.connect, transports.PlaywrightTransport])
def test_shared_options_are_shown_and_checked(function: Any) -> None:
    shown = inspect.signature(function).parameters
    assert {"target", "url"} & shown.keys() and {"browser", "cdp_url", "storage_state"} <= shown.keys()
    assert not any(one.kind is one.VAR_KEYWORD for one in shown.values())
    with pytest.raises(TypeError, match="unexpected keyword argument 'brwser'"):
        function("ws://127.0.0.1:9/", brwser="chromium")
