"""Agents of each framework, and loops around each model's API, with the reference app in a real browser.

The models follow a script. docs/agents.md says what they see; the examples are the programs that run."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.environment import ROOT, HostPython, python_of
from webapp_fixture import serve

pytestmark = pytest.mark.hosts

FRAMEWORKS = ("pydantic_ai", "langchain", "openai_agents")
APIS = ("openai", "openai_responses", "anthropic", "google")
#: Rows of the table in docs/agents.md.
ROWS = {
    "pydantic_ai": "Pydantic AI",
    "langchain": "LangChain",
    "openai_agents": "OpenAI Agents SDK",
    "openai": "Chat Completions",
    "openai_responses": "Responses",
    "anthropic": "Messages",
    "google": "Gemini",
}
#: A PNG and a PDF as base64.
PNG, PDF = "iVBORw0KGgo", "JVBERi0"
#: Names of parameters that frameworks use themselves.
NAMES = ("config", "self", "run_manager", "ctx", "name", "arguments", "tool_args")


@pytest.fixture(scope="module")
def python() -> HostPython:
    return HostPython(python_of("agents"), "tests.hosts.scripted")


async def ran(python: HostPython, framework: str, scenario: str, folder: Path) -> dict[str, Any]:
    async with serve() as workbench:
        facts: dict[str, Any] = await asyncio.to_thread(python.run, framework, scenario, workbench.url, cwd=folder)
        return facts


def figures(row: str) -> list[int]:
    """The bytes of each step in the table of the page."""
    page = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
    (cells,) = re.findall(rf"^\| {re.escape(row)} ((?:\| [\d,]+ )+)\|$", page, re.MULTILINE)
    return [int(cell.replace(",", "")) for cell in cells.split("|")[1:]]


@pytest.mark.parametrize("framework", [*FRAMEWORKS, *APIS])
async def test_agent_exports_pdf_reads_page_and_passes_file_on(
    python: HostPython, tmp_path: Path, framework: str
) -> None:
    facts = await ran(python, framework, "report", tmp_path)
    assert facts["answer"] == "The second page is about costs."
    before, printed, read, digest = facts["seen"]
    (content,) = (tmp_path / "abp").rglob("*.pdf")
    size, uri = content.stat().st_size, "artifact://export_pdf_"
    assert uri not in before and uri in printed and str(size) in printed
    assert "Text of " in printed and "They grew." in printed, "the beginning is a preview"
    assert "Page 2 of 2 of " in read and "They fell." in read
    assert hashlib.sha256(content.read_bytes()).hexdigest() in digest.rpartition("They fell.")[2], "the second tool's"
    # bytes that the model saw: text, and the picture that it asked for, which Chat Completions have no place for
    assert PDF not in digest and len(printed) < 6000
    assert (PNG in read) is (framework != "openai")
    assert PNG in read or "image/png: not shown here" in read
    bytes_seen = [len(seen.encode()) for seen in facts["seen"]]
    added = [after - before for before, after in itertools.pairwise(bytes_seen)]
    for measured, written in zip(added, figures(ROWS[framework]), strict=True):
        # a picture of a page has other fonts on another machine, and a path another folder
        assert written * 0.7 < measured < written * 1.4, (added, figures(ROWS[framework]))
    assert len(facts["tools"]) > 20 or framework == "google"


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_app_errors_reach_model(python: HostPython, tmp_path: Path, framework: str) -> None:
    facts = await ran(python, framework, "failing", tmp_path)
    assert facts["answer"] == "It did not work." and facts["alive"] is True
    *_, last = facts["seen"]
    for said in (
        "Next: do not repeat it unchanged",
        "[TIMEOUT]",
        "Next: it may have run: look at the app before you call again, for less at once",
        "Next: use an id from the result of a tool",
        "is a required property [INVALID_PARAMS]",
        "this path may not be read",
    ):
        assert said in last, said
    if framework == "langchain":
        assert last.count('"status": "error"') == 5


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_a_cancelled_run_cancels_the_call_in_the_app(python: HostPython, tmp_path: Path, framework: str) -> None:
    facts = await ran(python, framework, "cancelled", tmp_path)
    assert facts == {"states": ["running", "cancelled"], "ended": True, "turns": 1}


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_frameworks_keep_annotations_progress_and_parameter_names(
    python: HostPython, tmp_path: Path, framework: str
) -> None:
    """A destructive tool can be asked about before it runs; no name of a parameter is lost to the framework."""
    facts = await ran(python, framework, "annotated", tmp_path)
    assert facts["called"]["echo"] == dict.fromkeys(NAMES, 1)
    tools = {tool.pop("name"): tool for tool in facts["tools"]}
    if framework == "langchain":
        event = {"tool": "abp_echo", "progress": 1, "total": 2, "message": "half"}
        assert facts["told"] == [["abp_progress", event], ["echo", "wipe"]]
    else:
        assert facts["told"] == ["abp_wipe"] and "wipe" not in facts["called"]
    if framework == "openai_agents":
        assert [tools[name]["approval"] for name in ("abp_echo", "abp_wipe")] == [False, True]
    else:
        assert tools["abp_echo"]["metadata"] == {"annotations": {"readOnlyHint": True}, "capability": "echo"}
        assert tools["abp_wipe"]["metadata"] == {"annotations": {"destructiveHint": True}, "capability": "wipe"}


def test_documented_agent_programs_are_in_examples() -> None:
    page = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
    programs = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    examples = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "examples" / "agents").glob("*.py"))
    assert programs
    for program in programs:
        assert program in examples or textwrap.indent(program, "    ") in examples, program


def test_every_agent_example_is_covered() -> None:
    examples = {path.stem.removeprefix("with_") for path in (ROOT / "examples" / "agents").glob("*.py")}
    assert examples == {*FRAMEWORKS, *APIS}
