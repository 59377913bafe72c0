"""``abp discover`` as a process: the reference app, and pages that have no manifest."""

from __future__ import annotations

import asyncio
import json
import re

from tests.e2e.test_cli import Cli, Ran, abp as abp
from tests.http.test_discovery import LINK, json_reply, manifest, page, site
from tests.support.raw_server import RawServer, Serve, serve as serve
from webapp_fixture import serve as workbench


async def run(abp: Cli, *args: str) -> Ran:
    return await asyncio.to_thread(abp, "discover", *args)


async def test_the_reference_app_as_text(abp: Cli) -> None:
    async with workbench() as fixture:
        ran = await run(abp, fixture.url)
    first, *listed, last = ran.text.splitlines()
    assert (ran.status, ran.err) == (0, "")
    assert re.fullmatch(r"Workbench \S+ \(\S+\)", first)
    assert last == f"ABP 0.1, from {fixture.url}abp-manifest.json"
    assert any(re.fullmatch(r"  export\.pdf +Lay HTML out for print.*", line) for line in listed)
    assert len({re.match(r"  \S+ +", line).end() for line in listed}) == 1  # type: ignore[union-attr]
    assert not abp.out.exists()


async def test_the_reference_app_as_json(abp: Cli) -> None:
    async with workbench() as fixture:
        ran = await run(abp, fixture.strict_url, "--json")
    document = ran.document
    assert (ran.status, ran.err) == (0, "")
    assert list(document) == [
        "success",
        "app",
        "abp",
        "title",
        "page_url",
        "manifest_url",
        "capabilities",
        "warnings",
    ]
    assert (document["success"], document["abp"], document["title"]) == (True, "0.1", "Workbench")
    assert (document["page_url"], document["warnings"]) == (fixture.strict_url, [])
    assert document["manifest_url"] == fixture.url + "abp-manifest.json"
    (pdf,) = [listed for listed in document["capabilities"] if listed["name"] == "export.pdf"]
    assert set(pdf) == {"name", "description", "inputSchema", "outputSchema", "experimental", "deprecated"}
    assert pdf["inputSchema"]["type"] == "object"


async def test_a_page_without_a_manifest(abp: Cli, serve: Serve) -> None:
    server = await serve(site({"/": page("")}))
    ran = await run(abp, f"{server.url}/", "--json")
    assert ran.status == 1
    error = ran.document["error"]
    assert ran.document == {"success": False, "error": error, "cancelled": False}
    assert error["code"] == "DISCOVERY_FAILED" and error["details"] == {"url": f"{server.url}/"}
    assert ran.complaint == f"abp: {error['message']} [DISCOVERY_FAILED]"
    assert 'no <link rel="abp-manifest" href="…"> in its head' in ran.complaint
    ran = await run(abp, f"{server.url}/nothing")
    assert (ran.status, ran.out) == (1, b"") and "answered 404 Not Found [DISCOVERY_FAILED]" in ran.complaint


async def test_warnings_go_to_stderr_and_into_the_document(abp: Cli, serve: Serve) -> None:
    body = manifest({"name": "old", "deprecated": True}, {}, {"name": "\x1b[31mred", "experimental": True}, abp="3.1")
    server = await serve(site({"/": page(), "/m.json": json_reply(body)}))
    ran = await run(abp, server.url, "--json")
    assert ran.status == 0 and [c["name"] for c in ran.document["capabilities"]] == ["old", "\x1b[31mred"]
    assert len(ran.document["warnings"]) == 2
    assert ran.err == "".join(f"abp: {warning}\n" for warning in ran.document["warnings"])
    ran = await run(abp, server.url)
    assert ran.err.count("\n") == 2 and "newer than 0.1" in ran.err
    assert "[deprecated]" in ran.text and "[experimental]" in ran.text and "\x1b" not in ran.text


async def test_a_link_to_a_private_address(abp: Cli, serve: Serve) -> None:
    other: RawServer = await serve(json_reply(), host="127.0.0.2")
    server = await serve(page(LINK.replace("/m.json", f"{other.url}/m.json")))
    ran = await run(abp, server.url)
    assert ran.status == 1 and "[BLOCKED_ADDRESS]" in ran.complaint and other.connects == 0
    abp.env["ABP_ALLOW_PRIVATE_ADDRESSES"] = "1"
    ran = await run(abp, server.url, "--json")
    assert ran.status == 0 and json.loads(ran.out)["success"] is True


async def test_bad_usage(abp: Cli) -> None:
    ran = await run(abp)
    assert ran.status == 2 and "missing argument 'URL'" in ran.complaint
    ran = await run(abp, "127.0.0.1:8000", "--json")
    assert ran.status == 2 and ran.document["error"]["code"] == "INVALID_PARAMS"
    assert "such as http://127.0.0.1:8000/" in ran.complaint
