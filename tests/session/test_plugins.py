"""Transports of other distributions: found by scheme and by name, listed by the doctor, and blamed by name."""

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from transports import UsageError, connect
from transports._internal.plugins import installed_plugins
from transports.surfaces.cli import _doctor as checks, main
from transports.surfaces.cli._doctor import _check_optional

MODULE = """
from transports import MemoryTransport


class PigeonTransport(MemoryTransport):
    name = "pigeon"

    def __init__(self, target, *, timeout):
        async def where(params, call):
            return {"target": target, "timeout": timeout}

        super().__init__({"where": where})


def broken(target, *, timeout):
    raise RuntimeError("no wings")


def wrong(target, *, timeout):
    return "a string"
"""
POINTS = """[abp.transports]
pigeon = pigeon_post:PigeonTransport
pigeon-broken = pigeon_post:broken
pigeon-wrong = pigeon_post:wrong
pigeon-gone = pigeon_post:missing
"""


def distribution(folder: Path, name: str, points: str) -> None:
    info = folder / f"{name.replace('-', '_')}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(points)


@pytest.fixture
def pigeons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A distribution as pip leaves it behind, on the path."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "pigeon_post.py").write_text(MODULE)
    distribution(folder, "pigeon-post", POINTS)
    monkeypatch.syspath_prepend(folder)
    yield folder
    sys.modules.pop("pigeon_post", None)
    importlib.invalidate_caches()


@pytest.mark.parametrize(("target", "transport"), [("pigeon://roof/3", "auto"), ("http://127.0.0.1:1/", "pigeon")])
async def test_plugin_is_found_by_scheme_and_by_name(
    pigeons: Path, tmp_path: Path, target: str, transport: str
) -> None:
    async with connect(target, transport=transport, store=tmp_path / "out", timeout=7) as app:
        result = await app.call("where")
    assert result.data == {"target": target, "timeout": 7.0}
    assert result.transport == "pigeon"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("pigeon-broken://x", "'pigeon-broken' of pigeon-post 1.2 does not work .RuntimeError: no wings"),
        ("pigeon-wrong://x", "made a str, not a transports.Transport"),
        ("pigeon-gone://x", "does not work .AttributeError"),
        ("eagle://x", "not a target.*pigeon"),
    ],
)
def test_broken_plugin_is_named_in_error(pigeons: Path, target: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        connect(target)


def test_plugins_claiming_same_scheme_are_rejected(pigeons: Path) -> None:
    distribution(pigeons, "other-post", "[abp.transports]\npigeon = pigeon_post:broken\n")
    with pytest.raises(UsageError, match="uninstall all but one"):
        connect("pigeon://x")


def test_doctor_lists_plugins(
    pigeons: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "CHECKS", [_check_optional])  # no browser is started
    assert "pigeon" in installed_plugins("abp.transports")
    main(["doctor", "--json"])
    document = json.loads(capsys.readouterr().out)
    plugin = {"group": "abp.transports", "name": "pigeon", "distribution": "pigeon-post", "version": "1.2"}
    assert plugin in document["plug_ins"]
    main(["doctor"])
    assert "pigeon (pigeon-post 1.2)" in capsys.readouterr().out
