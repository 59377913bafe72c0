"""The capabilities as data (``capabilities.json``, ``faults.json``): the page and the manifest read the same files."""

import json
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


def manifest() -> dict[str, Any]:
    """The ABP manifest, as served at ``/abp-manifest.json``."""
    listed = [{k: v for k, v in entry.items() if k != "uses"} for entry in capabilities()]
    return {"abp": "0.1", "app": app_info(), "capabilities": listed}


def page_data() -> str:
    """What the page needs to know, as JSON that is safe inside a ``<script type="application/json">``."""
    data = {"app": app_info(), "capabilities": capabilities(), "faults": capabilities(faults=True)}
    return json.dumps(data).replace("<", "\\u003c")
