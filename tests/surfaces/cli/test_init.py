"""``abp init``: new projects, with the files that the documentation shows."""

from __future__ import annotations

import json
import re
import runpy
import socket
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import jsonschema_rs
import pytest

from transports.session._app_tables import AppTables
from transports.session._settings import TABLES, read_config, routing_of
from transports.surfaces.cli import main
from transports.surfaces.mcp._options import Options

DOCS = Path(__file__).parents[3] / "docs"


def files_of_page(name: str) -> dict[str, str]:
    """The files that a page of the documentation shows, by name: each stands below its name."""
    page = (DOCS / name).read_text(encoding="utf-8")
    return dict(re.findall(r"^`([\w./-]+)`\n\n```\w+\n(.*?)^```$", page, re.DOTALL | re.M))


@pytest.fixture
def written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[str], dict[str, str]]:
    def write(kind: str) -> dict[str, str]:
        """The files that ``abp init`` writes, by name."""
        assert main(["init", kind, str(tmp_path / "new" / kind), "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        folder = Path(document["folder"])
        assert {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} == set(
            document["files"]
        )
        return {name: (folder / name).read_text(encoding="utf-8") for name in document["files"]}

    return write


def test_init_writes_files_from_documentation(written: Callable[[str], dict[str, str]]) -> None:
    app, shown = written("app"), files_of_page("write-an-app.md")
    assert shown.keys() == {"web/index.html", "web/app.js"} and len(app) == 7
    assert {name: app[name] for name in shown} == shown
    view, shown = written("view"), files_of_page("views.md")
    assert view.keys() == {"card.html", "server.py", "test_card.py"}
    assert all(view[name] == shown[name] for name in ("server.py", "test_card.py"))
    adapter = written("adapter")
    script = adapter["table.js"].partition("\n\n")[2]
    assert f"```js\n{script}```" in (DOCS / "adapters.md").read_text(encoding="utf-8")
    assert adapter.keys() == {"page.html", "table.js", "test_table.py"}


def test_init_prints_files_and_next_step_and_its_server_reports_port_in_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["init", "app", str(tmp_path / "notes")]) == 0
    printed = capsys.readouterr().out
    assert f"File saved: {tmp_path}/notes/web/app.js\n" in printed and "abp conformance http://" in printed
    assert f"\n  cd {tmp_path}/notes\n" in printed
    with socket.create_server(("127.0.0.1", 0)) as taken, monkeypatch.context() as started:
        port = taken.getsockname()[1]
        started.setattr(sys, "argv", ["serve.py", str(port)])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(tmp_path / "notes" / "serve.py"), run_name="__main__")
    wanted = f"cannot listen on 127.0.0.1:{port}: Address already in use; name another port, 0 for a free one"
    assert ended.value.code == wanted
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")  # which nobody need be told to enter
    assert main(["init", "config"]) == 0
    assert capsys.readouterr().out.endswith("Then confirm that the file is yours:\n  abp mcp --trust\n")


@pytest.mark.parametrize("kind", ["app", "view", "adapter", "tests", "config"])
def test_unusable_folder_error_says_what_to_do(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    if kind != "config":
        assert main(["init", kind, str(tmp_path)]) == main(["init", kind, str(tmp_path / "mine.txt")]) == 2
        assert "is not an empty folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    assert main(["init", kind, "/proc/new"]) == 2
    message = capsys.readouterr().err
    assert "/proc/new cannot be written" in message and "name another folder" in message
    assert "INTERNAL_ERROR" not in message


def test_generated_settings_file_is_valid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is set at first; with all of them taken out of their comments, every reader takes the file."""
    monkeypatch.chdir(tmp_path)
    assert main(["init", "config", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == ["abp.schema.json", "abp.toml"]
    file = tmp_path / "abp.toml"
    assert tomllib.loads(file.read_text(encoding="utf-8")) == {}
    assert main(["init", "config"]) == 2 and "abp.toml exists" in capsys.readouterr().err.replace("schema.json", "toml")
    file.write_text(re.sub(r"^# (?=\[|\w+ = )", "", file.read_text(encoding="utf-8"), flags=re.M), encoding="utf-8")
    config = read_config(file)
    assert set(config.tables or {}) == set(TABLES)
    schema = jsonschema_rs.validator_for(json.loads((tmp_path / "abp.schema.json").read_text(encoding="utf-8")))
    assert [str(error) for error in schema.iter_errors(config.tables)] == []
    wrong = {"mcp": {"alowed_hosts": []}, "apps": {"x": {}}, "retention": {"ttl": 1}, "other": {}}
    assert len(list(schema.iter_errors(wrong))) == 4
    rule = {"field_path": "content", "content_type": "pdf", "summary_template": "Downloaded"}
    documented = {
        "max_inline_size": 10_000,
        "auto_artifact_large_content": False,
        "binary_detection": {"enabled": True, "signatures": {"JVBERi": ["pdf", "application/pdf"]}},
        "agent": {"max_observation_chars": 50_000, "preserve_structure": True, "auto_artifact_threshold": 20_000},
        "tool_fields": {"download_workbook": [rule]},
    }
    files = {"max_file_size_mb": 100, "allowed_mime_types": ["*/*"]}
    assert schema.is_valid({"routing": {**documented, "servers": {"a": documented}}, "mcp": files})
    assert AppTables.parse(config.tables or {}, file).apps["crm"].timeout == 120
    assert Options.load(config=file).browsers == 2 and routing_of(config).general["max_inline_chars"] == 20000
    assert main(["artifacts", "list", "--out", str(tmp_path / "files")]) == 0
