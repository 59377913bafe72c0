"""Routing by a settings file: for all apps, for single servers, on top of presets, those of other distributions too."""

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.apps import answering, b64
from tests.support.rows import each_row
from transports import MemoryTransport, RoutingPolicy, UsageError, connect
from transports.routing import ABP, GITHUB, TABLEAU, RoutingConfig, named_preset, preset
from transports.surfaces.mcp._options import Options

FILE = """
[routing]
max_inline_chars = 20000
max_inline_bytes = "none"
signatures = [{ magic = "41 43 4d 45", mime_type = "application/x-acme" }]

[routing.resources]
auto_read_if_size_under_bytes = 5000

[routing.agent]
max_field_chars = 9000

[routing.servers.tableau]
agent = { max_bytes = 20000 }

[[routing.servers.tableau.tool_fields.export_crosstab]]
path = "$.sheets[*].content"
mime_type = "text/csv"

[routing.servers.nothing]
preset = "abp"
heuristics = false
"""
PDF = b"%PDF-1.4\nsmall"


def parse(text: str) -> RoutingConfig:
    return RoutingConfig.parse(tomllib.loads(text).get("routing", {}), "abp.toml: routing")


@pytest.mark.requirement("R2-6.1b", "R2-6.4c")
def test_server_settings_override_general_and_preset() -> None:
    config = parse(FILE)
    tableau = config.policy("tableau-mcp", presets=True)
    assert tableau.tool_fields["download_workbook"] == TABLEAU.tool_fields["download_workbook"]
    assert [rule.path for rule in tableau.tool_fields["export_crosstab"]] == ["$.sheets[*].content"]
    assert (tableau.max_inline_chars, tableau.max_inline_bytes) == (20_000, None)
    assert (tableau.agent.max_bytes, tableau.agent.max_field_chars) == (20_000, 9_000)
    assert tableau.resources.auto_read_if_size_under_bytes == 5000 and tableau.resources.enabled
    assert [(one.magic, one.mime_type) for one in tableau.signatures] == [(b"ACME", "application/x-acme")]
    github = config.policy("github-mcp-server", presets=True)
    assert (github.tool_fields, github.max_inline_chars) == (GITHUB.tool_fields, 20_000)
    assert "download_workbook" not in config.policy("tableau-mcp", presets=False).tool_fields
    assert not config.policy("nothing", presets=True).heuristics
    whole_name = parse('[routing.servers."my-Tools"]\nheuristics = false')
    assert not whole_name.policy("My-tools", presets=False).heuristics
    assert RoutingConfig().policy("an app", presets=True) is ABP
    of_all = parse('[routing]\npreset = "github"\n[routing.servers.other]\npreset = "tableau"')
    assert of_all.policy("x", presets=False).tool_fields == GITHUB.tool_fields
    assert of_all.policy("other", presets=False).tool_fields == TABLEAU.tool_fields


@pytest.mark.requirement("R2-6.1b", "R2-6.1f")
@each_row(
    ("text", "message"),
    [
        ("routing = 3", "abp.toml: routing: must be a table, [routing]"),
        ("[routing]\nmax_inline_charz = 1", "routing.max_inline_charz: unknown; did you mean max_inline_chars?"),
        ("[routing]\ntransformer = 'os:system'", "abp.toml: routing.transformer: unknown"),
        ("[routing.servers.a]\nmax_texts = 'x'", "routing.servers.a.max_texts: Input should be a valid integer"),
        ("[routing.servers.a]\nmax_texts = -1", "abp.toml: routing.servers.a: RoutingPolicy: max_texts must not be"),
        ("[routing.servers.a]\npreset = 'b'", "routing.servers.a.preset: no preset is called 'b'; there are abp"),
        ("[routing.agent]\nmax_chars = 3", "abp.toml: routing.agent.max_chars: Unexpected keyword argument"),
        ("[[routing.tool_fields.x]]\npath = '$.a['", "abp.toml: routing: '$.a[' is not a JSONPath"),
        ("[[routing.tool_fields.x]]\nmime_type = 'a/b'", "abp.toml: routing.tool_fields.x.0.path: Field required"),
        ("[[routing.tool_fields.x]]\npth = '$.a'", "routing.tool_fields.x.0.pth: Unexpected keyword argument"),
        ("[[routing.signatures]]\nmagic = 'zz'", "abp.toml: routing.signatures: magic must be hexadecimal digits"),
        # names of the document that docs/requirements.md R2 follows
        ("[routing]\nmax_inline_sizes = 1", "abp.toml: routing.max_inline_sizes: unknown"),
        ("[routing]\nmax_inline_size = 1\nmax_inline_chars = 1", "routing: max_inline_chars is given under two names"),
        ("[routing.binary_detection]\nenable = true", "routing.binary_detection.enable: unknown"),
        ("[routing]\nheuristics = true\nbinary_detection.enabled = true", "heuristics is given under two names"),
        ("[routing]\nbinary_detection = 1", "routing.binary_detection: must be a table"),
        ("[routing.binary_detection]\nsignatures = 1", "routing.binary_detection.signatures: must be a table"),
        ('[routing.binary_detection.signatures]\n"J?" = ["a", "b/c"]', "signatures.J?: is not the beginning of base64"),
        ('[routing.binary_detection.signatures]\nJVBERi = "pdf"', "signatures.JVBERi: must be an extension and a type"),
        ('[routing.binary_detection.signatures]\nPK = ["zip", "application/zip"]', "magic must have at least 3 bytes"),
        ("[routing.agent]\nmax_observation = 1", "routing.agent.max_observation: Unexpected keyword argument"),
        ("[routing]\nmax_inline_bytes = 1\nagent.auto_artifact_threshold = 1", "max_inline_bytes is given under two"),
        ('[[routing.tool_fields.a]]\nfield_path = "x"\npath = "y"', "tool_fields.a.0: path is given under two names"),
        ('[[routing.tool_fields.a]]\nfield_paths = "x"', "routing.tool_fields.a.0"),
    ],
)
def test_invalid_routing_setting_is_named(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert message in caught.value.message


# --- in a session -----------------------------------------------------------------------------------------------------


async def place_of_the_file(folder: Path, **options: object) -> list[str]:
    transport = MemoryTransport({"download_workbook": answering({"content": b64(PDF), "name": "Q3"})})
    async with connect("memory:", transport=transport, store=folder / "out", **options) as app:  # type: ignore[arg-type]
        return [*(await app.call("download_workbook")).artifacts]


@pytest.mark.requirement("R2-6.1b")
async def test_session_reads_rules_from_named_or_found_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert await place_of_the_file(tmp_path) == [""]
    rules = (
        '[[routing.servers.memory.tool_fields.download_workbook]]\npath = "content"\nmime_type = "application/pdf"\n'
    )
    (tmp_path / "own.toml").write_text(rules)
    monkeypatch.setenv("ABP_CONFIG", "own.toml")
    assert await place_of_the_file(tmp_path) == ["content"]
    monkeypatch.setenv("ABP_CONFIG", "gone.toml")
    with pytest.raises(UsageError, match=r"gone\.toml cannot be read"):
        await place_of_the_file(tmp_path)
    monkeypatch.delenv("ABP_CONFIG")
    (tmp_path / "abp.toml").write_text("[mcp]\nmax_sessions = 2\n" + rules)
    assert await place_of_the_file(tmp_path) == ["content"]
    assert await place_of_the_file(tmp_path, routing=ABP) == [""]
    assert Options.load().max_sessions == 2
    for table, advice in (
        ("rooting", r"did you mean \[routing\]\?"),
        ("users", r"settings belong in the tables \[apps\], "),
    ):
        (tmp_path / "abp.toml").write_text(f"[{table}]\n")
        with pytest.raises(UsageError, match=f"{table}: unknown; {advice}"):
            await place_of_the_file(tmp_path)


async def test_session_accepts_preset_by_name(tmp_path: Path) -> None:
    assert await place_of_the_file(tmp_path, routing="tableau") == ["content"]
    with pytest.raises(UsageError, match="no preset is called 'tablo'; there are abp, github, tableau"):
        await place_of_the_file(tmp_path, routing="tablo")


# --- presets of other distributions -----------------------------------------------------------------------------------


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A distribution with presets, as pip leaves it behind, on the path."""
    info = tmp_path / "site" / "acme_presets-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-presets\nVersion: 1.2\n")
    points = (
        "acme = acme_presets:ACME\ntableau = acme_presets:OWN\nwrong = acme_presets:WRONG\ngone = acme_presets:GONE\n"
    )
    (info / "entry_points.txt").write_text(f"[abp.presets]\n{points}")
    (tmp_path / "site" / "acme_presets.py").write_text(
        "from transports import RoutingPolicy\n"
        "ACME, OWN, WRONG = RoutingPolicy(max_texts=3), RoutingPolicy(max_texts=4), 'a text'\n"
    )
    monkeypatch.syspath_prepend(tmp_path / "site")
    yield tmp_path
    sys.modules.pop("acme_presets", None)


@pytest.mark.requirement("R2-6.4c")
def test_third_party_presets_are_found_by_name_before_builtin_ones(installed: Path) -> None:
    assert preset("Acme MCP server").max_texts == named_preset("acme").max_texts == 3
    assert preset("tableau-mcp").max_texts == 4
    assert preset("github-mcp-server") is GITHUB
    policy = parse('[routing.servers.x]\npreset = "acme"\n').policy("x", presets=False)
    assert policy == RoutingPolicy(max_texts=3)
    with pytest.raises(UsageError, match="there are abp, acme, github, gone, tableau, wrong"):
        named_preset("nothing")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("wrong", "the preset 'wrong' of acme-presets 1.2 is a str, not a transports.RoutingPolicy"),
        ("gone", "the preset 'gone' of acme-presets 1.2 does not work .AttributeError"),
    ],
)
def test_broken_preset_is_named_in_error(installed: Path, name: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        preset(f"{name}-server")
