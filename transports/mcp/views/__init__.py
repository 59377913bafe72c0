"""Views of MCP servers (MCP Apps): a host that shows the HTML of a tool and speaks with it. Extra ``[mcp]``.

* :mod:`._document` — the document of a view: HTML, content security policy, permissions.
* :mod:`._host` — answers to the requests of a view.
* :mod:`._look` — whether a view shows anything, and where its scripts cannot be parsed.
* :mod:`._profiles` — hosts to imitate, as data; :mod:`._messages` — messages of a view, as typed values.
* :mod:`._transport` — the transport: the view as an app whose capabilities are the tools that it registers.
"""

from __future__ import annotations

from ._document import CspMode, ViewDocument, policy_remedy, read_document
from ._host import Decision, Host, HostContext, ViewHandlers, ViewRequest
from ._look import is_blank
from ._messages import DisplayMode
from ._profiles import HostProfile, host_names, read_profile
from ._transport import OpenedTool, ViewTransport, WhyBlank

__all__ = [
    "CspMode",
    "Decision",
    "DisplayMode",
    "Host",
    "HostContext",
    "HostProfile",
    "OpenedTool",
    "ViewDocument",
    "ViewHandlers",
    "ViewRequest",
    "ViewTransport",
    "WhyBlank",
    "host_names",
    "is_blank",
    "policy_remedy",
    "read_document",
    "read_profile",
]
