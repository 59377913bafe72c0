"""``python -m tests.hosts.comparison``: the same results through our router and through the host's tool source.

It writes the tables into ``comparison.md``; a test compares them with a new measurement.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.hosts.environment import HostPython, installed
from tests.hosts.results import Case, files, floods, look_alikes
from transports import Router, open_store

__all__ = ["documented", "measure"]

DOCS = Path(__file__).with_name("comparison.md")
BEGIN = "<!-- measured: python -m tests.hosts.comparison -->"
END = "<!-- /measured -->"


@dataclass(frozen=True, slots=True)
class Routed:
    """What became of one result: hashes, sizes and number of the files, and the characters left for an agent."""

    hashes: Sequence[str]
    sizes: Sequence[int]
    files: int
    left: int


async def _ours(case: Case) -> Routed:
    result = await Router(open_store("memory:")).route(case.answer, capability="tool")
    refs = [ref for field, ref in result.artifacts.items() if field and ref.mime_type != "text/plain"]
    left = len(json.dumps(result.for_agent(), ensure_ascii=False, separators=(",", ":")))
    return Routed([ref.sha256 for ref in refs], [ref.size_bytes for ref in refs], len(refs), left)


async def _both(cases: Sequence[Case], host: HostPython, folder: Path) -> list[tuple[Case, Routed, Routed]]:
    path = folder / "cases.json"
    path.write_text(json.dumps([case.as_dict() for case in cases]), encoding="utf-8")
    theirs = await asyncio.to_thread(host.run, "routes", str(path), cwd=folder)
    return [(case, await _ours(case), Routed(**one)) for case, one in zip(cases, theirs, strict=True)]


async def measure(host: HostPython, folder: Path) -> str:
    """Return the tables, made anew."""
    whole: dict[str, list[int]] = {}
    for case, ours, theirs in await _both(list(files()), host, folder):
        assert case.content is not None
        digest = hashlib.sha256(case.content).hexdigest()
        counts = whole.setdefault(case.kind, [0, 0, 0])
        for at, count in enumerate((1, digest in ours.hashes, digest in theirs.hashes)):
            counts[at] += count
    rows = [[kind, *map(str, counts)] for kind, counts in sorted(whole.items(), key=lambda row: (-row[1][2], row[0]))]
    total = [f"**{sum(column)}**" for column in zip(*whole.values(), strict=True)]
    lines = _lines(["files, whole", "results", "here", "penguiflow"], [*rows, ["**all**", *total]])
    taken = await _both(list(look_alikes()), host, folder)
    false = [str(sum(bool(routed.files) for routed in side)) for side in zip(*[row[1:] for row in taken], strict=True)]
    lines += [
        "",
        *_lines(["texts taken for files", "results", "here", "penguiflow"], [["all kinds", str(len(taken)), *false]]),
    ]
    rows = []
    for case, ours, theirs in await _both(list(floods()), host, folder):
        rows.append([case.kind, *(_left(case, routed) for routed in (ours, theirs))])
    lines += ["", *_lines(["floods: characters left in the answer", "here", "penguiflow"], rows)]
    return "\n".join(lines)


def _left(case: Case, routed: Routed) -> str:
    said = f"{routed.left:,}"
    if case.content is None:
        return said
    if hashlib.sha256(case.content).hexdigest() in routed.hashes:
        return f"{said}; the file is whole"
    if routed.files:
        return f"{said}; the file is cut at {max(routed.sizes):,} bytes"
    return f"{said}; no file, its base64 is a text of {max(routed.sizes):,} characters"


def _lines(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]


def documented() -> str:
    """The tables as they stand in the docs."""
    return DOCS.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].strip()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = asyncio.run(measure(installed(), Path(folder)))
    before, _, rest = DOCS.read_text(encoding="utf-8").partition(BEGIN)
    if rest:
        DOCS.write_text(f"{before}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}", encoding="utf-8")
    print(table)


if __name__ == "__main__":
    main()
