"""The capabilities as data (``capabilities.json``, ``faults.json``): the page and the manifest read the same files."""

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
    """Id, name, version and description of the app."""
    return dict(_load("capabilities.json")["app"])


def capabilities(faults: bool = False) -> list[dict[str, Any]]:
    """The definitions of what the app can do; with ``faults``, of the ``fault.*`` ones instead."""
    return list(_load("faults.json" if faults else "capabilities.json")["capabilities"])


def named_faults(query: Mapping[str, str]) -> set[str] | None:
    """Which faults an address lists: ``?faults`` all (``None``), ``?faults=alert,wire.cut`` those two, else none."""
    if query.get("faults") == "":
        return None
    names = filter(None, query.get("faults", "").split(","))
    return {name if name.startswith("wire.") else f"fault.{name}" for name in names}


def given_params(query: Mapping[str, str]) -> dict[str, Any]:
    """The parameters that an address gives to the faults that it names, as ``?given={"delta":2}``."""
    return dict(json.loads(query.get("given", "{}")))


def bound(definition: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """A definition without the parameters that are given already."""
    schema = definition["inputSchema"]
    left = {name: inner for name, inner in schema.get("properties", {}).items() if name not in given}
    needed = [name for name in schema.get("required", ()) if name not in given]
    return {**definition, "inputSchema": {**schema, "properties": left, "required": needed}}


def manifest(query: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The ABP manifest, as served at ``/abp-manifest.json``, with the faults that the page's address lists."""
    listed = [{k: v for k, v in entry.items() if k != "uses"} for entry in capabilities()]
    if query and "faults" in query:
        named, given = named_faults(query), given_params(query)
        for fault in capabilities(faults=True):
            if named is None or fault["name"] in named:
                listed.append(bound(fault, given) if named else fault)
    return {"abp": "0.1", "app": app_info(), "capabilities": listed}


def page_data() -> str:
    """What the page needs to know, as JSON that is safe inside a ``<script type="application/json">``."""
    data = {"app": app_info(), "capabilities": capabilities(), "faults": capabilities(faults=True)}
    return json.dumps(data).replace("<", "\\u003c")
