"""Views of MCP servers (MCP Apps): a host that shows the HTML of a tool and speaks with it. Extra ``[mcp]``.

* :mod:`._document` — the document of a view: HTML, content security policy, permissions.
* :mod:`._diagnosis` — why a view shows nothing.
* :mod:`._host` — hosts to imitate, as data; messages of a view, and the answers to them.
* :mod:`._transport` — the transport: the view as an app whose capabilities are the tools that it registers.
"""

from __future__ import annotations

from ..._internal.lazy import requiring_extra

with requiring_extra("the MCP SDK", "mcp"):
    from .. import _wire as _wire

from ._host import read_profile

__all__ = ["read_profile"]
