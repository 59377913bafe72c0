"""Files that take the place of older ones: what is left of those whose writer was killed, and of no others."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tests.support.local_store import fail_when, run_script, visible
from transports.artifacts import _files as module
from transports.artifacts._files import Replacement, remove_abandoned_files, replacing, try_lock

_COPY = """
import os, sys
from pathlib import Path
from transports.artifacts._files import replacing
with replacing(Path(sys.argv[1])) as file:
    file.write(b"content")
    if sys.argv[2] == "killed":
        os._exit(0)
"""


@pytest.fixture(autouse=True)
def again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file looks for what was left, as the first one of a process does."""
    monkeypatch.setattr(module, "_remove_left_once", remove_abandoned_files)


@pytest.mark.slow
def test_leftovers_of_killed_copy_are_removed_by_next_copy(tmp_path: Path) -> None:
    run_script(_COPY, tmp_path / "a", "killed")
    (left,) = visible(tmp_path)
    others = [".abp-mine", f"{left}.txt"]
    for name in others:
        (tmp_path / name).touch()
    file = Replacement(tmp_path / "b")
    (written,) = set(visible(tmp_path)) - set(others)
    assert written != left
    # a copy by another process: which ids, hosts and containers the two have does not count
    run_script(_COPY, tmp_path / "c", "whole")
    assert visible(tmp_path) == sorted([*others, written, "c"])
    file.close()
    assert visible(tmp_path) == sorted([*others, "c"])


def test_temporary_file_removed_before_locking_is_recreated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, tries = try_lock, 0

    def lost_twice(fd: int) -> bool:
        nonlocal tries
        tries += 1
        if tries == 1:
            return False  # another process has locked it, to remove it
        if tries == 2:
            remove_abandoned_files(tmp_path)  # another process was faster
            assert visible(tmp_path) == []
        return lock(fd)

    new = Replacement(tmp_path / "a")
    (first,) = visible(tmp_path)
    new.close()
    monkeypatch.setattr(module, "try_lock", lost_twice)
    with replacing(tmp_path / "a") as file:
        file.write(b"new")
    monkeypatch.undo()
    remove_abandoned_files(tmp_path)
    assert visible(tmp_path) == ["a"] and first != "a" and (tmp_path / "a").read_bytes() == b"new"


def test_without_locks_replacement_works_and_removes_no_leftovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_when(monkeypatch, module, "try_lock", lambda _: True, errno.EOPNOTSUPP)
    (tmp_path / ".abp-0123456789abcdef").touch()
    with replacing(tmp_path / "a") as file:
        file.write(b"new")
    assert visible(tmp_path) == [".abp-0123456789abcdef", "a"]


def test_recently_closed_file_is_kept_where_open_files_cannot_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "OPEN_FILES_MOVE", False)
    old, young = tmp_path / f".abp-{'0' * 16}", tmp_path / f".abp-{'1' * 16}"
    old.touch()
    os.utime(old, (1, 1))
    young.touch()
    with replacing(tmp_path / "a") as file:
        file.write(b"new")
    assert visible(tmp_path) == [young.name, "a"]


def test_failed_write_leaves_only_older_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(ValueError, match="wrong"), replacing(tmp_path / "a") as file:
        file.write(b"new")
        raise ValueError("wrong")
    assert visible(tmp_path) == ["a"] and (tmp_path / "a").read_bytes() == b"old"
    os.mkfifo(tmp_path / f".abp-{'2' * 16}")
    remove_abandoned_files(tmp_path)
    remove_abandoned_files(tmp_path / "absent")
    assert visible(tmp_path) == [f".abp-{'2' * 16}", "a"]
