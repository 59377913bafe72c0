"""One trace from an agent to the store, by ``examples/observability``: two programs and a collector."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.e2e.test_examples import run_example, url as url

pytestmark = pytest.mark.browser

CALL = ["MCP send tools/call abp_file_generate", "tools/call abp_file_generate", "execute_tool file.generate"]


@pytest.mark.slow
def test_one_trace_spans_agent_to_store(url: str, tmp_path: Path) -> None:
    picture = tmp_path / "trace.svg"
    out = run_example("observability/one_trace.py", url, str(picture), cwd=tmp_path)
    *lines, metrics = out.splitlines()
    found = [re.fullmatch(r" *[\d.]+ ms  (agent|abp mcp) *?  ((?:  )*)(\S.*)", line.replace("agent     ", "agent    "))
             for line in lines]  # fmt: skip
    assert all(found), out
    tree = [(match[1], match[3].split("  ")) for match in found if match]
    names = [name for _, (name, *_) in tree]
    work = [*CALL, "abp.request", "abp.transfer", "abp.verify", "abp.commit"]
    assert names == ["agent: two files", *work, *work[:5], "GET", *work[5:]]
    assert [service for service, _ in tree] == [
        "agent" if name.startswith(("agent", "MCP send")) else "abp mcp" for name in names
    ]
    notes = {name: rest for _, (name, *rest) in tree[:8]}
    assert notes["abp.transfer"] == ["rung=download"] and notes["abp.commit"] == [f"artifact.size={2 << 20}"]
    assert metrics == "metrics: abp.artifact abp.browsers abp.call.duration mcp.server.operation.duration"
    root = ElementTree.parse(picture).getroot()
    bars = root.findall("{http://www.w3.org/2000/svg}rect[@class='s1']")
    assert len([bar for bar in bars if bar.get("rx")]) == names.count("GET") + 2 * (len(work) - 1) + 1
