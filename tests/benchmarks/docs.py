"""``docs/performance.md``, written from the figures of one run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.report import Report, Table
from tests.benchmarks.tried import TRIED

__all__ = ["AFTER_FIGURES", "DOCUMENT", "PICTURE", "document", "markdown_table"]

_DOCS = Path(__file__).resolve().parents[2] / "docs"
DOCUMENT = _DOCS / "performance.md"
PICTURE = _DOCS / "performance.svg"
#: The heading of what follows the figures, and their spread.
AFTER_FIGURES = "## Tried\n"

_INTRODUCTION = """\
# Performance

Written by `python -m tests.benchmarks --write-docs` from one run; `make bench` gives the figures of your own machine,
`--spread FILE …` the spread of several runs, each written with `--json FILE`.
A limit is the cheapest program that we could write for the same outcome in the library that the kit uses; a peer is
what one finds documented. "Without the driver" is for information: a debugging port is open to every user of the
machine.
Trust the ratios: each baseline ran in the same run, in turns with the kit, as often, on the same kind of page. Speeds
compare the best of each (the ratio of the medians stands beside it), those of WebMCP tools round by round, latencies
the medians. What the app itself does to make a file is in neither side: the page makes it beforehand and hands it out
again. Sizes are powers of two (1 MB = 1,048,576 bytes). Memory is what processes have resident (pages that they share
count in each), sampled every 20 ms.
A whole run takes less than five minutes: of each way the few rounds that its figure needs, and no more content than
shows it.
Leave six minutes between two runs: each removes 100,000 files at its end, and on ext4 without a journal every new file
of a default store then waits for up to 2 ms.
"""

_WAYS = """\
## How each way works

**Page → file.** Each answer comes back as one JSON text over the page's own CDP session. Small content is base64 inside
it, in the same round trip. Larger content stays in the page, and only a reference comes; then the first of these rungs
that can be used moves it:

- `download`: one call in the page makes a `blob:` URL, clicks it and revokes it; the browser writes the file straight
  into the store's staging folder. A thread hashes it behind the browser's writer, under a second name that the file has
  from its first bytes on; at the end it is renamed, the rest is hashed, and it is synced. No byte passes through the
  driver. Content over 400 MB goes in slices of 64 MB, because the browser caps what all blobs may hold: each is put at
  the file's end, and hashed there, while the browser writes the next.
- `stream`: `IO.resolveBlob` and `IO.read` over CDP; for content where a download costs more than it saves, and for more
  than nine files a second, since Chromium silently drops downloads beyond ten a second.
- `slices`: base64 text, 6 MB at a time; works wherever a script can run.

The *documented client* is what a reader of Playwright's manual writes: a binary string built by chunks, `btoa`, the
text returned by `evaluate`, `base64.b64decode`, `write`. The file is neither hashed nor synced to the disk.

**File → page.** Small files are base64 in the call. Larger ones are given to a detached `<input type=file>` by path
(`DOM.setFileInputFiles`): the browser reads the file itself, and the app receives an `ArrayBuffer`. The baseline hands
the bytes to `evaluate` as an argument, which sends them to the page as base64 inside JSON.

**Small calls.** JSON text goes in and out over CDP; Playwright's own serialiser, which walks every value, is left out.
The kit does more than the baseline: it validates the answer, finds and decodes content, verifies and hashes it, and
makes a reference. Large JSON goes the same way up to 2 MB; above that it is content that stayed in the page.

![Where the time of one small call goes](small-call.svg)

The picture is of one answer of 14 rows, in turns with the cheapest command for the same values
(`python -m tests.benchmarks.traced`): what Python does before and after, the way through the driver and the browser,
and the renderer's task. *Before* is the kit before calls waited in their callers' own tasks. Both were drawn on a busy
machine: compare a bar with its own bare command, which ran in turns with it.
"""

_PARTS = """\
The parts of one call nest: the download holds the page's part in it, the wait until the browser begins (the blob goes
from the page to the browser) and the move; the commit holds the end of the hash (while the file is synced) and the
publishing. *In the page* are the app's answer (`call`), making a blob and its click (`download`), and letting go.
"""


def document(report: Report) -> str:
    """The whole document."""
    rows = [
        (row.work, row.baseline, f"**{row.shown}**", row.target(row.at_least), row.target(row.want), row.verdict)
        for row in report.rows
    ]
    head = ("work", "against", "figure", "at least", "we want", "verdict")
    details = [f"- {row.work}: {row.measured}." for row in report.rows]
    where = ", ".join(f"{name} {value}" if name != "system" else value for name, value in report.machine.items())
    return "\n".join(
        [
            _INTRODUCTION,
            f"Measured on: {where}; {report.seconds:.0f} s in all.\n",
            "## Figures\n",
            *markdown_table(head, rows),
            "\n![Ratios and latencies](performance.svg)\n",
            *details,
            "## " + _short(report) + "\n",
            *_why(report),
            "",
            AFTER_FIGURES,
            TRIED,
            _WAYS,
            "## Where time goes, and latency over size\n",
            _PARTS,
            *(line for table in report.tables for line in _latencies(table)),
        ]
    )


def _short(report: Report) -> str:
    return "What falls short" if any(row.explanation for row in report.rows) else "Nothing falls short"


def _why(report: Report) -> list[str]:
    short = [row for row in report.rows if row.explanation]
    if not short:
        return ["Every figure is what is wanted."]
    return [f"- **{row.work}** ({row.shown}, {row.verdict}): {row.explanation}." for row in short]


def _latencies(table: Table) -> list[str]:
    head, *body = table.lines()
    return [f"{table.title}, in milliseconds:\n", *markdown_table(["", *head[1:]], body), ""]


def markdown_table(head: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table."""
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *body)]
