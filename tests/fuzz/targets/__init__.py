"""The doors by which bytes come in, each as a function. Their names are those of the folders of the corpus."""

from __future__ import annotations

from collections.abc import Mapping

from ..cases import Target
from . import content, files, messages, proxied, tokens, web

TARGETS: Mapping[str, Target] = {
    door.__name__: door
    for door in (
        messages.envelope,
        messages.reply,
        messages.capabilities,
        messages.answer,
        messages.mcp,
        messages.tools,
        files.recording,
        files.metadata,
        files.settings,
        files.jobs,
        content.base64,
        content.sniffing,
        content.schema,
        content.filename,
        content.redaction,
        content.evidence,
        content.spellings,
        web.manifest,
        web.page_head,
        web.headers,
        web.url,
        tokens.claims,
        proxied.conversation,
    )
}
