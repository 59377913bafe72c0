"""``abp call --routing KEY=VALUE``: settings of the routing on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from webapp_fixture import Fixture

CSV = "name,value\nlonger than ten,2"


@pytest.mark.requirement("R2-6.1b")
def test_routing_settings_come_from_options_and_file(
    abp: CommandLine, workbench: Fixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    call = ("call", workbench.ws_url, "data.json", "-p", f"csv={CSV}", "--json")

    def fields(*options: str) -> list[str]:
        ran = abp(*call, *options)
        assert ran.status == 0, ran.err
        return [one["field"] for one in ran.document["artifacts"]]

    assert fields() == [""]
    assert len(fields("--routing", "max_inline_chars=10")) == 2
    assert len(fields("--routing", "max_inline_size=10", "--preset", "tableau")) == 2  # as the document calls it
    Path("abp.toml").write_text("[routing]\nmax_inline_chars = 10\n")
    assert len(fields()) == 2
    assert len(fields("--routing", "agent.max_bytes=2000")) == 2  # what the file says besides stays
    assert fields("--routing", "max_inline_chars=none") == [""]


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("max_inline_char=10", "--routing.max_inline_char: unknown; did you mean max_inline_chars?"),
        ("max_inline_chars", "--routing 'max_inline_chars' is not of the form KEY=VALUE"),
        ("max_inline_chars=soon", "--routing.max_inline_chars: Input should be a valid integer"),
        ("agent=3", "--routing.agent"),
        ("servers.a.max_texts=3", "--routing.servers: unknown"),
        ("preset=b", "--routing.preset: no preset is called 'b'"),
    ],
)
def test_unknown_setting_is_rejected(abp: CommandLine, option: str, said: str) -> None:
    ran = abp("call", "http://127.0.0.1:9/", "x", "--routing", option)
    assert ran.status == 2 and said in ran.err
