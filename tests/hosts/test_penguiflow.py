"""The host that the store protocol was written for: ``penguiflow``, in an environment of its own."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.hosts.environment import ROOT, HostPython, python_of
from webapp_fixture import serve

pytestmark = pytest.mark.hosts

PAGE = ROOT / "docs" / "hosts.md"
SHA256 = "0a3a1decee52b7e241afd5bf207d9b7087709a22d21ab2e9a4d530b554b63ef2"


@pytest.fixture(scope="module")
def host() -> HostPython:
    return HostPython(python_of("penguiflow"), "tests.hosts.inside")


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_stores_work_behind_penguiflow_facade(host: HostPython, tmp_path: Path, kind: str) -> None:
    facts = host.run("behind_its_facade", {"local": str(tmp_path / "out"), "memory": "memory:"}[kind], cwd=tmp_path)
    ref, text = facts.pop("ref"), facts.pop("text")
    assert facts.pop("deleted") == [True, False, None]
    assert facts == dict.fromkeys(["is_store", "found", "is_ref", "again", "content", "listed", "apart", "open"], True)
    assert ref["scope"] == {"tenant_id": "t", "user_id": "u", "session_id": "one", "trace_id": "x"}
    assert (ref["filename"], ref["mime_type"], ref["size_bytes"], ref["sha256"], ref["namespace"]) == (
        "a.pdf",
        "application/pdf",
        2009,
        SHA256,
        "abp.resource",
    )
    assert ref["source"]["n"] == 1 and ref["source"]["uri"] == f"artifact://{ref['id']}"
    assert ("path" in ref["source"]) is (kind == "local")
    assert text["mime_type"] == "text/plain" and text["namespace"] is None


def test_stores_work_behind_penguiflow_tools(host: HostPython, tmp_path: Path) -> None:
    """The incident of a PDF as base64 in the answer of a tool: it ends in our store."""
    facts = host.run("behind_its_tools", "memory:", cwd=tmp_path)
    assert facts["content"] is True and facts["name"] == "Sales Dashboard"
    assert (facts["artifact"]["mime_type"], facts["artifact"]["sha256"]) == ("application/pdf", SHA256)
    assert facts["artifact"]["scope"]["session_id"] == "one" and facts["artifact"]["namespace"] == "tableau"


def test_penguiflow_stores_work_as_artifact_stores(host: HostPython, tmp_path: Path) -> None:
    facts = host.run("with_its_stores", cwd=tmp_path)
    assert facts.pop("routed") == {"kept": True}
    scopes = facts.pop("scopes")
    assert scopes.pop("theirs") == {"tenant_id": "t", "user_id": "u", "session_id": "s", "trace_id": "x"}
    assert scopes == {"same": True, "apart": True, "by_their_facade": True}
    nothing = facts.pop("nothing")
    assert nothing["truncated"] is True and nothing["readable"] is False
    sessions = {"store": None, "state": None, "facade": "facade", "context": "context"}
    assert facts.keys() == sessions.keys()
    for name, fact in facts.items():
        document, theirs = fact["document"], fact["theirs"]
        assert fact["kept"] is True and fact["readable"] is True and fact["log"] == "text/plain", name
        for key in ("id", "filename", "mime_type", "size_bytes", "sha256"):
            assert document[key] == theirs[key], (name, key)
        assert document["filename"] == "report.pdf" and document["sha256"] == SHA256
        assert theirs["source"]["capability"] == "report.make"
        assert document.get("scope", {}).get("session") == sessions[name]
        assert (theirs["scope"] or {}).get("session_id") == sessions[name]


async def test_documented_penguiflow_program_runs(host: HostPython, tmp_path: Path) -> None:
    async with serve() as app:
        facts = await asyncio.to_thread(host.run, "by_the_book", str(PAGE), app.ws_url, cwd=tmp_path)
    printed = facts["printed"]
    assert printed["scope"]["session_id"] == "planned" and facts["printed_content"] == "%PDF-"
    assert Path(printed["source"]["path"]).parent == tmp_path / "files" and facts["model_saw_it"] is True
    assert {"abp.abp_call", "abp.abp_export_pdf", "abp.resources_read"} <= set(facts["tools"])
    csv, pdf = facts["contents"]
    assert csv == "a,b\r\n1,é\r\n" and pdf.startswith("%PDF-")
    assert [one["artifact"]["mime_type"] for one in facts["received"]] == ["text/csv", "application/pdf"]
    assert facts["listed"] == sorted(one["artifact"]["id"] for one in facts["received"])
