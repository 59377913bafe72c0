"""An input that somebody else wrote: which targets its lines may name, and which files they may send."""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.batch.runs import Recorder
from tests.support.eventually import eventually
from transports.batch import Job, RunOptions, State, open_ledger, run
from transports.batch._batch import add_input
from transports.batch._jobs import Consent
from transports.batch._runner import Runner
from transports.errors import UsageError

URL = "http://127.0.0.1:9/"
#: Targets that start a program, load an extension, or read a file; and ones that nothing is known of.
PROGRAMS = [
    "mcp+stdio:touch ran",
    "MCP+STDIO:touch ran",
    "extension:folder",
    "./folder",
    "folder",
    "replay:recording.jsonl",
    "mcp:servers.json#one",
    "file:///etc/passwd",
    "plugged://anything",
    " http://127.0.0.1/",
    "mcp+ws://127.0.0.1/",
]
ADDRESSES = [URL, "HTTPS://app.example/", "ws://app.example/abp", "wss://app.example/", "mcp+https://app.example/mcp"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a secret and an extension in it; an input's folder is another."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret").write_text("x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "manifest.json").write_text("{}")
    (tmp_path / "input").mkdir()
    return tmp_path


def written(*lines: Mapping[str, object], to: str = "input/jobs.jsonl") -> Path:
    path = Path(to)
    path.write_text("".join(json.dumps({"capability": "do", **line}) + "\n" for line in lines))
    return path


async def ran(source: Path | list[Job], **options: Any) -> list[Job]:
    driver = Recorder()
    await run(source, "run", pool=driver, **options)
    return driver.jobs


# --- targets ----------------------------------------------------------------------------------------------------------


async def test_job_line_does_not_start_program_unless_allowed() -> None:
    path = written({"target": URL}, *({"target": target} for target in PROGRAMS))
    with pytest.raises(UsageError) as refused:
        await ran(path)
    for number in range(2, 2 + len(PROGRAMS)):
        assert re.search(rf"line {number}: target: .* is neither an address .*allow_programs=", refused.value.message)
    assert not Path("run/ledger.sqlite").exists() or not [row async for row in rows()]
    assert {job.target for job in await ran(path, allow_programs=True)} == {URL, *PROGRAMS}


async def rows() -> Any:
    async with open_ledger("run") as ledger:
        async for row in ledger.rows():
            yield row


async def test_job_line_accepts_addresses_and_app_names() -> None:
    targets = {*ADDRESSES, "docs"}
    assert {job.target for job in await ran(written(*({"target": target} for target in targets)))} == targets


@pytest.mark.parametrize("target", [PROGRAMS[0], "folder", "plugged://anything"])
async def test_run_target_is_trusted_in_job_lines(target: str) -> None:
    path = written({}, {"target": target, "params": {"n": 1}})
    assert [job.target for job in await ran(path, target=target)] == [target, target]


async def test_job_objects_have_no_file_restrictions(here: Path) -> None:
    jobs = [Job("do", target=PROGRAMS[0], files={"a": here / "secret"})]
    assert await ran(jobs) == jobs


async def test_worker_does_not_run_programs_from_foreign_ledger(here: Path) -> None:
    jobs = [
        Job("do", target=PROGRAMS[0]),
        Job("do", target=URL),
        Job("do", target=URL, files={"a": here / "secret"}),
    ]
    async with open_ledger(here / "run") as ledger:
        await ledger.add(lambda: [jobs], "theirs")
        driver = Recorder()
        await Runner(ledger, driver, RunOptions(consent=Consent())).run()
        assert driver.jobs == [jobs[1]]
        found = [row async for row in ledger.rows()]
        assert [row.state for row in found] == [State.FAILED, State.SUCCEEDED, State.FAILED]
        assert [row.error_code for row in found] == ["PERMISSION_DENIED", None, "PERMISSION_DENIED"]
        await ledger.retry_failed()
        allowed = Consent(programs=True, folder=here, any_target=True)
        await Runner(ledger, driver, RunOptions(consent=allowed)).run()
        assert sorted(map(repr, driver.jobs)) == sorted(map(repr, jobs))


async def test_job_cancelled_while_its_files_are_checked_returns_to_queue(here: Path) -> None:
    checking, released = threading.Event(), threading.Event()

    class SlowConsent(Consent):
        def checked(self, job: Job) -> Job:
            checking.set()
            released.wait(10)
            return super().checked(job)

    (here / "a").touch()
    async with open_ledger(here / "run") as ledger:
        await ledger.add(lambda: [[Job("do", target=URL, files={"a": here / "a"})]], "theirs")
        work = asyncio.create_task(Runner(ledger, Recorder(), RunOptions(consent=SlowConsent())).run())
        await eventually(checking.is_set)
        work.cancel()
        released.set()
        with pytest.raises(asyncio.CancelledError):
            await work
        (row,) = [row async for row in ledger.rows()]
        assert (row.state, row.attempts) == (State.QUEUED, 0)


async def test_requeued_jobs_ask_for_consent_again(here: Path) -> None:
    """A run goes on with what its folder holds: whoever wrote that, programs are started if this command says so."""
    async with open_ledger(here / "run") as ledger:
        await ledger.add(lambda: [[Job("do", target=PROGRAMS[0])]], "theirs")
    path = written({"target": URL})
    assert [job.target for job in await ran(path, extend=True)] == [URL]


# --- files ------------------------------------------------------------------------------------------------------------


async def test_job_files_resolve_within_input_folder(here: Path) -> None:
    (here / "input" / "sub").mkdir()
    (here / "input" / "sub" / "a.png").write_bytes(b"png")
    (here / "input" / "link").symlink_to("sub/a.png")
    real = here / "input" / "sub" / "a.png"
    lines = [{"id": str(n), "files": {"a": path}} for n, path in enumerate(("sub/a.png", "link", str(real)))]
    found = await ran(written(*lines), target=URL)
    assert [job.files for job in found] == [{"a": real}]  # the same content: one job
    assert [row.job.files["a"] async for row in rows()] == [real] * 3


async def test_job_line_cannot_send_file_outside_input_folder(here: Path) -> None:
    (here / "input" / "link").symlink_to(here / "secret")
    (here / "input" / "out").symlink_to(here)
    paths = ("/etc/passwd", "../secret", "sub/../../secret", "link", "out/secret", "jobs.jsonl/x")
    with pytest.raises(UsageError) as refused:
        await ran(written(*({"files": {"a": path}} for path in paths)), target=URL)
    for number, line in enumerate(refused.value.message.splitlines()[1:], 1):
        assert re.match(rf"line {number}: files\.a: .* is not a regular file in .*input.*files_from=", line), line
    assert f"{len(paths)} invalid lines" in refused.value.message


async def test_user_given_folder_replaces_input_folder(here: Path) -> None:
    (here / "files").mkdir()
    (here / "files" / "a").write_bytes(b"x")
    (here / "input" / "b").write_bytes(b"x")
    found = await ran(written({"files": {"a": "a"}}), target=URL, files_from="files")
    assert [job.files for job in found] == [{"a": here / "files" / "a"}]
    with pytest.raises(UsageError, match="line 1: files"):
        await ran(written({"files": {"a": "b"}}), target=URL, files_from="files", extend=True)


async def test_input_files_go_only_to_run_target_and_named_apps(here: Path) -> None:
    (here / "input" / "a").write_bytes(b"x")
    named = [{"target": target, "files": {"a": "a"}} for target in ("docs", URL)]
    assert len(await ran(written(*named), target=URL)) == 2
    other = written({"target": "http://other.example/", "files": {"a": "a"}}, to="input/other.jsonl")
    with pytest.raises(UsageError, match=r"line 1: files\.a: .*the line names .* itself.*files_from="):
        await ran(other, target=URL, extend=True)
    assert len(await ran(other, target=URL, extend=True, files_from="input")) == 1


async def test_file_swapped_for_symlink_is_not_sent(here: Path) -> None:
    (here / "input" / "a").write_bytes(b"x")
    path = written({"files": {"a": "a"}})
    async with open_ledger("run") as ledger:
        consent = Consent(target=URL, folder=here / "input")
        await add_input(ledger, path, here / "run", target=URL, consent=consent)
        (here / "input" / "a").unlink()
        (here / "input" / "a").symlink_to(here / "secret")
        driver = Recorder()
        await Runner(ledger, driver, RunOptions(consent=consent)).run()
        assert not driver.jobs
        assert [row.error_code async for row in ledger.rows()] == ["PERMISSION_DENIED"]


async def test_file_like_parameter_is_treated_as_text() -> None:
    cells = ["@/etc/passwd", "file:///etc/passwd", "/etc/passwd"]
    lines = ({"params": {"a": cell, "b": {"content": cell, "mimeType": "text/plain"}}} for cell in cells)
    found = await ran(written(*lines), target=URL)
    assert [job.params["a"] for job in found] == cells and all(job.call_params() == job.params for job in found)


# --- names that no file has -------------------------------------------------------------------------------------------


#: Too long, no text, below a file, a loop, a folder, a pipe, a device.
ODD_NAMES = [
    *("x" * 256, "/".join(["x" * 200] * 40), "a\0b", "a\ud800"),
    *("jobs.jsonl/x", "loop", ".", "pipe", "zero"),
]


async def test_job_line_with_invalid_file_name_is_rejected(here: Path) -> None:
    folder = here / "input"
    (folder / "loop").symlink_to("loop")
    (folder / "zero").symlink_to("/dev/zero")
    os.mkfifo(folder / "pipe")
    with pytest.raises(UsageError) as refused:
        await ran(written({}, *({"files": {"a": name}} for name in ODD_NAMES)), target=URL)
    assert f"{len(ODD_NAMES)} invalid lines" in refused.value.message
    for name in ODD_NAMES:
        with pytest.raises(UsageError, match=r"files\.a: "):
            _ = Job("do", files={"a": folder / name}).key
