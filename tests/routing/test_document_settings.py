"""Settings under the names of the document that docs/requirements.md R2 follows: its defaults, as it prints them."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, cast

import pytest

from transports import RoutingPolicy, UsageError
from transports.artifacts import MemoryStore
from transports.protocol._strict_json import JSONValue
from transports.routing import Router, RoutingConfig

# --- the document -------------------------------------------------------------------------------------------


EXTRACTION: dict[str, Any] = {
    "max_inline_size": 10_000,
    "auto_artifact_large_content": True,
    "binary_detection": {
        "enabled": True,
        "signatures": {
            "JVBERi": ("pdf", "application/pdf"),
            "iVBORw": ("png", "image/png"),
            "/9j/": ("jpeg", "image/jpeg"),
            "UEsDB": ("zip", "application/zip"),
        },
        "min_size_for_detection": 1000,
        "max_decode_bytes": 5_000_000,
        "require_magic_bytes": True,
    },
    "resources": {
        "enabled": True,
        "auto_read_if_size_under_bytes": 0,
        "inline_text_if_under_chars": 10_000,
        "cache_reads_to_artifacts": True,
    },
    "tool_fields": {},
    "default_summary_template": "Binary content stored as artifact ({size} bytes)",
}
GUARDRAIL: dict[str, Any] = {
    "max_observation_chars": 50_000,
    "max_field_chars": 10_000,
    "truncation_suffix": "\n... [truncated: {truncated_chars} chars]",
    "preserve_structure": True,
    "auto_artifact_threshold": 20_000,
}


def field_config(path: str, kind: str, mime_type: str | None = None, template: str | None = None) -> dict[str, object]:
    return {
        "field_path": path,
        "content_type": kind,
        "mime_type": mime_type,
        "summary_template": template or "Downloaded {content_type} ({size} bytes)",
    }


ARTIFACT_FIELDS = {
    "download_workbook": [field_config("content", "pdf", "application/pdf", "Downloaded workbook '{name}' as PDF")],
    "get_view_as_pdf": [field_config("pdf_data", "pdf")],
}

# --- what it gives ----------------------------------------------------------------------------------------------------

PDF = b"%PDF-1.4\n" + b"x" * 3000
GIF = b"GIF89a" + bytes(range(256)) * 8


def policy(guardrail: Mapping[str, object] | None = None, **changes: object) -> RoutingPolicy:
    """The policy of the document's settings with some changed: as JSON, in which nothing is a tuple."""
    table = json.loads(json.dumps({**EXTRACTION, **changes, **({"agent": guardrail} if guardrail else {})}))
    return RoutingConfig.parse(table, "abp.toml: routing").policy("a server", presets=False)


@pytest.mark.requirement("R2-4.4j", "R2-6.1f", "R2-4.2b", "R2-4.2k", "R2-6.1b")
def test_documented_settings_map_to_kit_settings() -> None:
    own, kit = policy(), RoutingPolicy()
    assert (own.heuristics, own.min_guessed_chars, own.require_magic_bytes) == (True, 1000, True)
    assert (own.max_inline_chars, own.resources) == (kit.max_inline_chars, kit.resources)
    assert own.max_decode_bytes == 5_000_000
    assert own.default_summary_template == "Binary content stored as artifact ({size} bytes)"
    assert [(one.magic, one.mime_type) for one in own.signatures] == [
        (b"%PDF", "application/pdf"),
        (b"\x89PNG", "image/png"),
        (b"\xff\xd8\xff", "image/jpeg"),
        (b"PK\x03", "application/zip"),
    ]
    agent = policy(GUARDRAIL)
    assert (agent.agent.max_bytes, agent.agent.max_field_chars, agent.agent.preserve_structure) == (
        50_000,
        10_000,
        True,
    )
    assert agent.agent.truncation_suffix == kit.agent.truncation_suffix  # the document's is the default
    assert agent.max_inline_bytes == 20_000
    off = policy(auto_artifact_large_content=False)
    assert (off.max_inline_chars, off.max_inline_bytes) == (None, None)


@pytest.mark.requirement("R2-4.2a", "R2-4.2b")
async def test_signature_table_replaces_known_signatures() -> None:
    answer = {"pdf": base64.b64encode(PDF).decode(), "gif": base64.b64encode(GIF).decode()}
    routed = await Router(MemoryStore(), policy=policy()).route(answer, capability="x")
    assert {place: ref.mime_type for place, ref in routed.artifacts.items()} == {"pdf": "application/pdf"}
    assert routed.summary().startswith(f"Binary content stored as artifact ({len(PDF)} bytes)\n")
    detection = EXTRACTION["binary_detection"]
    only_gif = policy(binary_detection={**detection, "signatures": {"R0lGOD": ("gif", "image/gif")}})
    routed = await Router(MemoryStore(), policy=only_gif).route(answer, capability="x")
    assert {place: ref.mime_type for place, ref in routed.artifacts.items()} == {"gif": "image/gif"}
    binary_string = {"gif": GIF.decode("latin-1"), "pdf": PDF.decode("latin-1") + "\0"}
    routed = await Router(MemoryStore(), policy=only_gif).route(binary_string, capability="x")
    assert [*routed.artifacts] == ["gif"]
    off = policy(binary_detection={**detection, "enabled": False})
    assert (await Router(MemoryStore(), policy=off).route(answer, capability="x")).data == answer


@pytest.mark.requirement("R2-3.4f", "R2-3.4a", "R2-3.4b", "R2-3.4c", "R2-B.a", "R2-B.b")
async def test_documented_tool_fields_are_applied() -> None:
    router = Router(MemoryStore(), policy=policy(tool_fields=ARTIFACT_FIELDS))
    workbook = {"content": base64.b64encode(PDF).decode(), "name": "Sales Dashboard", "format": "pdf"}
    routed = await router.route(workbook, capability="download_workbook")
    assert routed.artifact().mime_type == "application/pdf"
    assert routed.summary().splitlines()[0] == "Downloaded workbook 'Sales Dashboard' as PDF"
    view = {"pdf_data": base64.b64encode(b"%PDF-1.4 short").decode(), "view_name": "Revenue by Region"}
    routed = await router.route(view, capability="get_view_as_pdf")
    assert routed.artifact().mime_type == "application/pdf"  # of content_type
    assert routed.summary().splitlines()[0] == "Downloaded pdf (14 bytes)"
    image = {"x": [field_config("data", "image")]}
    router = Router(MemoryStore(), policy=policy(tool_fields=image))
    routed = await router.route({"data": base64.b64encode(GIF).decode()}, capability="x")
    assert routed.artifact().mime_type == "image/gif"
    assert routed.summary().splitlines()[0] == f"Downloaded image ({len(GIF)} bytes)"


@pytest.mark.requirement("R2-4.4i", "R2-4.4c", "R2-4.4d")
async def test_answer_without_preserved_structure_is_text() -> None:
    rows = [{"id": n, "note": "delivered"} for n in range(5000)]
    limits = {**GUARDRAIL, "preserve_structure": False, "max_observation_chars": 5000}
    routed = await Router(MemoryStore(), policy=policy(limits)).route(rows, capability="x")
    seen = routed.for_agent()
    data = seen["data"]
    assert isinstance(data, str) and data.startswith('[{"id":0,"note":"delivered"},{"id":1,')
    assert data.endswith(" chars]") and "\n... [truncated: " in data
    assert len(json.dumps(seen)) <= 5100 and cast(Mapping[str, JSONValue], seen["truncated"])["uri"]
    small = await Router(MemoryStore(), policy=policy(limits)).route([1], capability="x")
    assert small.for_agent()["data"] == [1]


async def test_command_settings_take_precedence() -> None:
    table: dict[str, Any] = {"max_inline_chars": 5, "servers": {"crm": {"max_inline_bytes": 6, "max_texts": 1}}}
    config = RoutingConfig.parse(table, "abp.toml: routing")
    over = config.with_options({"preset": "tableau", "max_inline_size": 7, "max_texts": 2}, "--routing")
    policy = over.policy("crm", presets=True)
    assert (policy.max_inline_chars, policy.max_inline_bytes, policy.max_texts) == (7, 6, 2)
    assert "download_workbook" in policy.tool_fields
    with pytest.raises(UsageError, match=r"^--routing\.max_text: unknown; did you mean max_texts"):
        config.with_options({"max_text": 1}, "--routing")
