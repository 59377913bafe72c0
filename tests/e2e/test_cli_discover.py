"""``abp discover``: the reference app, and pages that have no manifest."""

from __future__ import annotations

import json
import re

from tests.e2e.test_cli import Cli, abp as abp, quick as quick
from tests.routing.http.test_discovery import LINK, json_reply, manifest, page, site
from tests.support.command_line import CommandLine, in_thread, serving
from tests.support.raw_server import listening


def test_discover_prints_reference_app(abp: Cli, quick: CommandLine) -> None:
    with serving() as fixture:
        ran, as_json = quick("discover", fixture.url), quick("discover", fixture.strict_url, "--json")
    first, *listed, last = ran.out.splitlines()
    assert (ran.status, ran.err) == (0, "")
    assert re.fullmatch(r"Workbench \S+ \(\S+\)", first)
    assert last == f"ABP 0.1, from {fixture.url}abp-manifest.json"
    assert any(re.fullmatch(r"  export\.pdf +Print HTML as a PDF.*", line) for line in listed)
    assert len({re.match(r"  \S+ +", line).end() for line in listed}) == 1  # type: ignore[union-attr]
    assert not abp.out.exists()

    document = as_json.document
    assert (as_json.status, as_json.err) == (0, "")
    keys = ["success", "app", "abp", "title", "page_url", "manifest_url", "capabilities", "warnings"]
    assert list(document) == keys
    capabilities = document.pop("capabilities")
    assert document.pop("app")["name"] == "Workbench" and document == {
        "success": True,
        "abp": "0.1",
        "title": "Workbench",
        "page_url": fixture.strict_url,
        "manifest_url": fixture.url + "abp-manifest.json",
        "warnings": [],
    }
    (pdf,) = [listed for listed in capabilities if listed["name"] == "export.pdf"]
    assert set(pdf) == {"name", "description", "inputSchema", "outputSchema", "experimental", "deprecated"}
    assert pdf["inputSchema"]["type"] == "object"


def test_page_without_manifest_is_reported(quick: CommandLine) -> None:
    with in_thread(listening(site({"/": page("")}))) as server:
        ran = quick("discover", f"{server.url}/", "--json")
        missing = quick("discover", f"{server.url}/nothing")
    assert ran.status == 1
    error = ran.document["error"]
    assert ran.document == {"success": False, "error": error, "cancelled": False}
    assert error["code"] == "DISCOVERY_FAILED" and error["details"] == {"url": f"{server.url}/"}
    assert ran.complaint == f"abp: {error['message']} [DISCOVERY_FAILED]"
    assert 'no <link rel="abp-manifest" href="…"> in its head' in ran.complaint
    assert (missing.status, missing.out) == (1, "")
    assert "answered 404 Not Found [DISCOVERY_FAILED]" in missing.complaint


def test_discover_warnings_go_to_stderr_and_document(quick: CommandLine) -> None:
    body = manifest({"name": "old", "deprecated": True}, {}, {"name": "\x1b[31mred", "experimental": True}, abp="3.1")
    with in_thread(listening(site({"/": page(), "/m.json": json_reply(body)}))) as server:
        ran, text = quick("discover", server.url, "--json"), quick("discover", server.url)
    assert ran.status == 0 and [c["name"] for c in ran.document["capabilities"]] == ["old", "\x1b[31mred"]
    assert len(ran.document["warnings"]) == 2
    assert ran.err == "".join(f"abp: {warning}\n" for warning in ran.document["warnings"])
    assert text.err.count("\n") == 2 and "newer than 0.1" in text.err
    assert "[deprecated]" in text.out and "[experimental]" in text.out and "\x1b" not in text.out


def test_manifest_link_to_private_address_is_blocked(quick: CommandLine) -> None:
    with (
        in_thread(listening(json_reply(), host="127.0.0.2")) as other,
        in_thread(listening(page(LINK.replace("/m.json", f"{other.url}/m.json")))) as server,
    ):
        ran = quick("discover", server.url)
        assert ran.status == 1 and "[BLOCKED_ADDRESS]" in ran.complaint and other.connects == 0
        ran = quick("discover", server.url, "--json", env={"ABP_ALLOW_PRIVATE_ADDRESSES": "1"})
    assert ran.status == 0 and json.loads(ran.out)["success"] is True
