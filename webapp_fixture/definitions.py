"""Definitions of the capabilities, from ``capabilities.json`` and ``faults.json``, which the page reads too."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


@cache
def _load(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((HERE / name).read_text("utf-8"))
    return loaded


def app_info() -> dict[str, str]:
    return dict(_load("capabilities.json")["app"])


def capabilities(faults: bool = False) -> list[dict[str, Any]]:
    """Return the definitions of the app's capabilities; with ``faults``, those of the ``fault.*`` capabilities."""
    return list(_load("faults.json" if faults else "capabilities.json")["capabilities"])


def named_faults(query: Mapping[str, str]) -> set[str] | None:
    """Return the faults that an address lists: all (``None``) for ``?faults``, two for ``?faults=alert,wire.cut``."""
    if query.get("faults") == "":
        return None
    names = filter(None, query.get("faults", "").split(","))
    return {name if name.startswith("wire.") else f"fault.{name}" for name in names}


def given_params(query: Mapping[str, str]) -> dict[str, Any]:
    """Return the parameters that an address gives to the faults it names, such as ``?given={"delta":2}``."""
    return dict(json.loads(query.get("given", "{}")))


def bound(definition: dict[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """Return a definition without the parameters that the address gives."""
    schema = definition["inputSchema"]
    left = {name: inner for name, inner in schema.get("properties", {}).items() if name not in params}
    needed = [name for name in schema.get("required", ()) if name not in params]
    return {**definition, "inputSchema": {**schema, "properties": left, "required": needed}}


def manifest(query: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the ABP manifest, as served at ``/abp-manifest.json``, with the faults that the page's address lists."""
    listed = [{k: v for k, v in entry.items() if k != "uses"} for entry in capabilities()]
    if query and "faults" in query:
        named, given = named_faults(query), given_params(query)
        for fault in capabilities(faults=True):
            if named is None or fault["name"] in named:
                listed.append(bound(fault, given) if named else fault)
    return {"abp": "0.1", "app": app_info(), "capabilities": listed}


def page_data() -> str:
    """Return the data for the page as JSON that is safe inside ``<script type="application/json">``."""
    data = {"app": app_info(), "capabilities": capabilities(), "faults": capabilities(faults=True)}
    return json.dumps(data).replace("<", "\\u003c")
