"""The planted faults of a server with a view, and the check of `abp conformance` that finds each."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from tests.support.mcp_servers import target


@dataclass(frozen=True)
class PlantedView:
    """A fault of `mcp_servers/faulty_views.py`, and the ``check`` that finds it. ``opens`` is true if the view has to
    be opened for that; the others are seen in what the server lists."""

    name: str
    check: str
    opens: bool = False

    @property
    def target(self) -> str:
        """The server with this fault."""
        return faulty_target(self.name)


def faulty_target(*views: str) -> str:
    """The server with a view for each, with its faults."""
    return target("faulty_views", *map(shlex.quote, views))


def listed(check: str, *names: str) -> tuple[PlantedView, ...]:
    return tuple(PlantedView(name, check) for name in names)


def opened(check: str, *names: str) -> tuple[PlantedView, ...]:
    return tuple(PlantedView(name, check, opens=True) for name in names)


PLANTED_VIEWS: tuple[PlantedView, ...] = (
    *listed("APP-001", "the tool names https://", "a view at file://"),
    *listed("APP-002", "the listed type is text/html", "the type is text/html", "a space in the type"),
    *listed("APP-003", "neither text nor blob"),
    *listed("APP-004", "JSON instead of HTML", "an empty text", "a blob that is not base64"),
    *listed("APP-005", "no such resource", "no contents"),
    *listed("APP-006", "the older key alone", "the key of ChatGPT alone"),
    *listed("APP-007", "metadata of the tool is a text", "resourceUri is a number", "visibility is a text"),
    *listed("APP-007", "a policy at the tool", "resourceURI", "resource_uri beside visibility", "ui/resourceuri"),
    *listed("APP-007", "the address at another key", "visibilty"),
    *listed("APP-008", "the policy is a list", "domains are a text", "a permission is true"),
    *listed("APP-008", "prefersBorder is a text", "domain is a number", "resource_domains", "clipboard-write"),
    *listed("APP-009", "any domain", "a domain without a scheme", "a domain with a path"),
    *opened("APP-010", "no content", "an empty text alone"),
    *listed("APP-011", "visible to users"),
    *opened("APP-100", "no ui/initialize", "ping instead of ui/initialize", "a script does not parse"),
    *opened("APP-101", "no appCapabilities", "appCapabilities are a list"),
    *opened("APP-102", "no initialized"),
    *opened("APP-103", "an unknown method", "a request of an unknown method", "no JSON-RPC", "no version of JSON-RPC"),
    *opened("APP-104", "no size"),
    *opened("APP-105", "tools/list refused", "tools/list answers an object", "tools/list is not answered"),
    *opened("APP-106", "fullscreen unasked"),
    *opened("view.shown", "nothing drawn", "the type is text/html"),
    *opened("view.policy", "a foreign picture", "a foreign library"),
    *opened("view.scripts", "a script fails"),
)

#: What a server may do: nothing is found.
ALLOWED_VIEWS: tuple[PlantedView, ...] = (
    *opened("", "as a blob", "the tool fails"),
    *listed("", "not listed", "both keys", "good metadata"),
)
