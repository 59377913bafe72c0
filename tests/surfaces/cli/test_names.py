"""Apps by name on the command line: trust, calls, ``abp login``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from transports._internal.masking import KNOWN_SECRETS
from webapp_fixture import Fixture

CANARY = "canary-of-the-command-line"


def test_app_name_is_valid_target_once_config_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abp: CommandLine, workbench: Fixture
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("CANARY", CANARY)
    monkeypatch.chdir(tmp_path)
    origin = workbench.ws_url.replace("ws://", "http://").partition("/abp")[0]
    Path("abp.toml").write_text(
        f'[apps.bench]\nurl = "{workbench.ws_url}"\n[apps.page]\nurl = "http://127.0.0.1:9/"\n'
        f'[secrets.CANARY]\nenv = "CANARY"\norigins = ["{origin}"]\n'
    )
    ran = abp("call", "bench", "convert.markdownToHtml", "-p", "markdown=${SECRET:CANARY}")
    assert ran.status == 2 and "abp mcp --trust" in ran.err and "--config" not in ran.err
    trusted = abp("mcp", "--trust")
    assert trusted.status == 0 and trusted.out.splitlines()[1:] == [
        f'  apps.bench.url = "{workbench.ws_url}"',
        '  apps.page.url = "http://127.0.0.1:9/"',
        '  secrets.CANARY.env = "CANARY"',
        f'  secrets.CANARY.origins = ["{origin}"]',
    ]
    try:
        ran = abp("call", "bench", "convert.markdownToHtml", "-p", "markdown=It is ${SECRET:CANARY}.", "--json")
        assert ran.document["success"] and CANARY not in ran.out + ran.err, ran
        stored = [Path(artifact["path"]).read_text() for artifact in ran.document["artifacts"]]
        assert stored and not any(CANARY in text for text in stored)
        assert "${SECRET:CANARY}" in ran.out or any("*" * len(CANARY) in text for text in stored), (ran, stored)
    finally:
        KNOWN_SECRETS.forget()
    with Path("abp.toml").open("a") as file:
        file.write("# one line more\n")
    changed = abp("call", "bench", "convert.markdownToHtml", "-p", "markdown=x")
    assert changed.status == 2 and "has an app bench, but it has changed since you trusted it" in changed.err
    assert abp("mcp", "--trust").status == 0
    for args, said in (
        (("login", "bench"), "bench is not a page"),
        (("login", "page"), 'add storage_state = "page.json"'),
        (("login", "pagf"), "did you mean page?"),
        (("login", "http://a.test/"), "'http://a.test/' is not the name of an app; `abp login` takes the name"),
        (("call", "bensh", "x"), "did you mean bench?"),
        (("mcp", "--app", "foo"), "foo is not an address, and no app of the settings file has this name"),
    ):
        ran = abp(*args)
        assert ran.status == 2 and said in ran.err, ran
