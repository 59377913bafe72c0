"""Presets: policies for servers that put files into fields without declaring them (docs/requirements.md R2-6.4,
R2-B).

Another distribution adds its own under the entry-point group ``abp.presets``; the name is a word of the server's name::

    [project.entry-points."abp.presets"]
    acme = "my_package:ACME_POLICY"
"""

from __future__ import annotations

import re

from ..errors import UsageError
from ..plugins import installed_plugins, load_plugin
from .policy import FieldRule, RoutingPolicy

__all__ = ["ABP", "GITHUB", "TABLEAU", "named_preset", "preset", "words_of"]

#: The entry-point group of presets.
GROUP = "abp.presets"

#: The default policy. Apps that speak ABP declare their content.
ABP = RoutingPolicy()

#: Tableau's MCP server: PDFs as base64 in fields that nothing declares (docs/requirements.md R2-1.1, R2-B).
TABLEAU = RoutingPolicy(
    tool_fields={
        "download_workbook": (
            FieldRule(
                "content",
                "application/pdf",
                "Downloaded workbook '{name}' as PDF ({size_human}). Artifact: {artifact_id}",
                "{name}.pdf",
                formats=("pdf",),
            ),
        ),
        "get_view_as_pdf": (
            FieldRule(
                "pdf_data",
                "application/pdf",
                "Downloaded view '{view_name}' as PDF ({size_human}). Artifact: {artifact_id}",
                "{view_name}.pdf",
            ),
        ),
    }
)

_FILE = FieldRule("content", summary="Downloaded {path} ({size_human}). Artifact: {artifact_id}", filename="{name}")
_BLOB = FieldRule("content", summary="Downloaded blob {sha} ({size_human}). Artifact: {artifact_id}")

#: GitHub: contents of files and Git blobs, as base64 in lines of 60 characters with ``encoding: "base64"`` beside it
#: (REST "Get repository content", "Get a blob"); its MCP server's embedded resources need no rule.
GITHUB = RoutingPolicy(
    tool_fields={
        "get_file_contents": (_FILE,),
        "get_content": (_FILE,),
        "get_blob": (_BLOB,),
    }
)

#: Presets of this kit by name. A server calls itself ``tableau-mcp`` or ``github-mcp-server``.
_BUILT_IN = {"abp": ABP, "github": GITHUB, "tableau": TABLEAU}


def preset(server: str) -> RoutingPolicy:
    """Return the policy for a server by the name that it gives itself; :data:`ABP` for a server without a preset.

    A preset is for servers with its name as a word of theirs. Those of other distributions come before ours. Raises
    :class:`~transports.errors.UsageError` for a preset of another distribution that does not work.
    """
    words = words_of(server)
    installed = [plugin.name for plugin in installed_plugins(GROUP)]
    return next((named_preset(name) for name in (*installed, *_BUILT_IN) if name.lower() in words), ABP)


def named_preset(name: str) -> RoutingPolicy:
    """Return the preset called ``name``: ``abp``, ``github``, ``tableau``, or that of another distribution, which comes
    first. Raises :class:`~transports.errors.UsageError`, which lists the presets, if there is none or it does not
    work."""
    plugin = load_plugin(GROUP, name, "preset")
    if plugin is None:
        if name in _BUILT_IN:
            return _BUILT_IN[name]
        known = sorted({*_BUILT_IN, *(plugin.name for plugin in installed_plugins(GROUP))})
        raise UsageError(f"no preset is called {name!r}; there are {', '.join(known)}")
    if not isinstance(plugin.value, RoutingPolicy):
        raise UsageError(
            f"{plugin.label} is a {type(plugin.value).__name__}, not a transports.RoutingPolicy; please report it"
        )
    return plugin.value


def words_of(server: str) -> frozenset[str]:
    """Return the words of a server's name in lower case, and the whole of it."""
    return frozenset((server.lower(), *re.split(r"[^a-z0-9]+", server.lower())))
