"""Presets: policies for servers that put files into fields without declaring them (docs/requirements.md R2-6.4,
R2-B)."""

from __future__ import annotations

import re

from .policy import FieldRule, RoutingPolicy

__all__ = ["ABP", "GITHUB", "TABLEAU", "preset"]

#: The default policy. Apps that speak ABP declare their content.
ABP = RoutingPolicy()

#: Tableau's MCP server: PDFs as base64 in fields that nothing declares (docs/requirements.md R2-1.1, R2-B).
TABLEAU = RoutingPolicy(
    fields={
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
    fields={
        "get_file_contents": (_FILE,),
        "get_content": (_FILE,),
        "get_blob": (_BLOB,),
    }
)

#: Presets by the name that a server gives itself: ``tableau-mcp``, ``github-mcp-server``.
_NAMED = {"tableau": TABLEAU, "github": GITHUB}


def preset(server: str) -> RoutingPolicy:
    """Return the policy for a server by the name that it gives itself; :data:`ABP` for any other server."""
    words = re.split(r"[^a-z0-9]+", server.lower())
    return next((policy for word, policy in _NAMED.items() if word in words), ABP)
