"""Settings of the bridge: ``abp.toml``, ``ABP_MCP_*``, and what they let a model do."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import TextContent

from tests.support.command_line import CommandLine
from tests.support.mcp_clients import URL, Apps, Serve, called, files_of, giving, read_with_tool, words
from tests.support.rows import each_row
from transports import Session
from transports.errors import UsageError
from transports.session._settings import trust
from transports.surfaces.mcp._options import Options


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, of a user who trusts nothing yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


# --- where settings come from -----------------------------------------------------------------------------------------


def test_arguments_override_variables_and_variables_override_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "in").mkdir()
    (folder / "own.toml").write_text(
        '[mcp]\napps = ["https://a.example/", "https://b.example/"]\nheadless = true\nmax_answer_bytes = 5000\n'
        'max_file_bytes = 7\nallowed_types = ["image/*", "text/plain"]\nroots = ["in"]\nidle_minutes = 1.5\n'
        'hide_tools = ["abp_screenshot"]\nblocked_hosts = ["evil.example"]\n'
    )
    with pytest.raises(UsageError, match=r"nowhere\.toml cannot be read"):
        Options.load(config=folder / "nowhere.toml")
    (folder / "abp.toml").write_text("[mcp]\nmax_sessions = 2\nidle_minutes = 3\n")
    assert Options.load(config=folder / "own.toml").idle_minutes == 1.5
    monkeypatch.setenv("ABP_CONFIG", "own.toml")
    options = Options.load()
    assert options.apps == ("https://a.example/", "https://b.example/")
    assert options.headless is True and options.max_answer_bytes == 5000 and options.idle_minutes == 1.5
    assert options.files.max_file_bytes == 7 and options.files.allowed_mime_types == ("image/*", "text/plain")
    assert options.roots == ((folder / "in").resolve(),)
    monkeypatch.setenv("ABP_MCP_MAX_ANSWER_BYTES", "6000")
    monkeypatch.setenv("ABP_MCP_APPS", "https://c.example/\nhttps://d.example/\n")
    monkeypatch.setenv("ABP_MCP_BLOCKED_HOSTS", "one.example, two.example")
    options = Options.load()
    assert options.max_answer_bytes == 6000 and options.apps == ("https://c.example/", "https://d.example/")
    assert options.blocked_hosts == ("one.example", "two.example")
    assert Options.load(apps=["https://e.example/"]).apps == ("https://e.example/",)
    monkeypatch.setenv("ABP_MCP_MAX_SESSIONS", "none")
    with pytest.raises(UsageError, match=r"^ABP_MCP_MAX_SESSIONS: "):
        Options.load()


@pytest.mark.requirement("R4-10a", "R4-10b", "R4-10g")
def test_documented_file_limit_names_are_accepted(folder: Path) -> None:
    """The document's YAML as it is printed, line by line as TOML."""
    table, *lines = """app_config:
  # File handling limits
  max_file_size_mb: 100
  allowed_mime_types: ["*/*"]  # or restrict as needed
  large_file_threshold_tokens: 10000
  max_auto_read_size_bytes: 1048576  # 1MB
  
  # Integration settings
  enable_file_tools: true
  enable_artifact_resources: true
""".splitlines()  # noqa: W293
    assert table == "app_config:"
    settings = [line.replace(": ", " = ", 1) for line in lines]
    (folder / "abp.toml").write_text("\n".join(["[mcp]", *settings]))
    assert sum(" = " in line for line in settings) == 6
    assert Options.load(config=folder / "abp.toml") == Options()
    (folder / "abp.toml").write_text('[mcp]\nmax_file_size_mb = 0.5\nallowed_mime_types = ["image/*"]\n')
    options = Options.load()  # found, not trusted: it narrows
    assert (options.max_file_bytes, options.allowed_types) == (512 << 10, ("image/*",))
    (folder / "abp.toml").write_text("[mcp]\nmax_file_size_mb = 101\n")
    assert Options.load().max_file_bytes == 100 << 20
    assert Options(max_file_size_mb=2).max_file_bytes == 2 << 20  # type: ignore[call-arg]


@each_row(
    ("text", "said"),
    [
        ("[mcp]\nmax_sesions = 1", r"abp\.toml: mcp\.max_sesions: unknown; did you mean max_sessions\?"),
        ("[mpc]\nmax_sessions = 1", r"abp\.toml: mpc: unknown"),
        ("mcp = 1", r"abp\.toml: mcp: must be a table"),
        ("[mcp", r"abp\.toml cannot be read"),
        ("[mcp]\nmax_file_size_gb = 1", r"abp\.toml: mcp\.max_file_size_gb: unknown"),
        (
            "[mcp]\nmax_file_size_mb = 1\nmax_file_bytes = 1",
            r"mcp: max_file_size_mb and max_file_bytes are the same setting",
        ),
        ("[mcp]\nmax_file_size_mb = -1", r"abp\.toml: mcp\.max_file_bytes: .*greater than or equal to 0"),
        ("[mcp]\nmax_file_size_mb = inf", r"abp\.toml: mcp\.max_file_bytes: "),
        ("[mcp]\nmax_sessions = 0", r"abp\.toml: mcp\.max_sessions: .*greater than 0"),
        ("[mcp]\nfriendly = true", r"abp\.toml: mcp\.friendly: unknown \["),
        ('[mcp]\nroots = "here"', r"abp\.toml: mcp\.roots: "),
        ("[mcp]\nadapter = 5", r"abp\.toml: mcp\.adapter: "),
        ('[mcp]\nroots = ["gone"]', r"abp\.toml: mcp\.roots: .*gone is not a folder"),
        ('[mcp]\nadapter = "../own.js"', r"an adapter \(own\.js\) is for one app, and 0 are given"),
        ('[mcp]\napps = ["http://a.example/"]\nadapter = "gone.js"', r"the adapter .*gone\.js.* cannot be read"),
        ('[mcp]\napps = ["ws://a.example/"]\nadapter = "own.js"', "an adapter is for a page"),
        ('[mcp]\njwt_issuer = "https://i.example"', "jwt_issuer and either"),
        ('[mcp]\njwt_audience = "https://a.test"', "jwt_issuer and either"),
        ("[mcp]\nrequired_scopes = ['a\"b']", r"abp\.toml: mcp\.required_scopes: "),
        ('[mcp]\ntool_scopes = {"*" = ["a b"]}', r"abp\.toml: mcp\.tool_scopes: "),
        ('[mcp]\npublic_url = "abp.example"', r"abp\.toml: mcp\.public_url: "),
        ('[mcp]\npublic_url = "https://abp.example/?a"', r"abp\.toml: mcp\.public_url: "),
        ('[mcp]\njwt_algorithms = ["HS256"]', r"abp\.toml: mcp\.jwt_algorithms: "),
    ],
)
def test_config_errors_name_file_and_key(folder: Path, text: str, said: str) -> None:
    (folder / "abp.toml").write_text(text)
    with pytest.raises(UsageError, match=said):
        Options.load(config=Path("abp.toml"))


_GRANTING = """[mcp]
apps = ["https://a.example/"]
roots = ["."]
export_roots = ["."]
token = "0123456789abcdef0123"
jwt_issuer = "i"
jwt_audience = "a"
jwt_jwks_url = "https://i.example/"
jwt_algorithms = ["EdDSA"]
max_sessions = 9
max_file_bytes = 3
isolate_sessions = true
allowed_hosts = ["127.*"]
hide_tools = ["abp_screenshot"]
"""


def _is_granted(options: Options) -> bool:
    """Whether all of the settings that grant something hold, or none."""
    granted = {bool(getattr(options, key)) for key in ("apps", "roots", "export_roots", "token", "jwt_issuer")}
    granted |= {options.max_sessions == 9, options.jwt_algorithms == ("EdDSA",), bool(options.private_hosts)}
    assert len(granted) == 1
    return granted.pop()


def test_untrusted_discovered_config_can_only_restrict(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, abp: CommandLine
) -> None:
    file = folder / "abp.toml"
    file.write_text(_GRANTING)
    options = Options.load()
    assert not _is_granted(options)
    assert options.max_file_bytes == 3 and options.isolate_sessions and options.hide_tools == ("abp_screenshot",)
    assert options.allowed_hosts == ("127.*",)  # nothing else may be connected
    (said,) = caplog.messages
    ignored = "mcp.apps, mcp.export_roots, mcp.jwt_algorithms, mcp.jwt_audience, mcp.jwt_issuer, mcp.jwt_jwks_url"
    assert said.startswith(f"abp.toml: ignored {ignored}, mcp.max_sessions, mcp.roots, mcp.token: ")
    assert "`abp mcp --trust`" in said and "ABP_CONFIG=abp.toml" in said
    assert _is_granted(Options.load(config=Path("abp.toml")))  # named
    with monkeypatch.context() as named:
        named.setenv("ABP_CONFIG", "abp.toml")
        assert _is_granted(Options.load())
    trusted = abp("mcp", "--trust")
    assert trusted.status == 0 and 'mcp.roots = ["."]' in trusted.out
    assert "0123456789abcdef" not in trusted.out + trusted.err
    assert _is_granted(Options.load())
    file.write_text(_GRANTING + "# \n")  # another content
    assert not _is_granted(Options.load())
    file.write_text(_GRANTING)
    (folder / "copy").mkdir()
    monkeypatch.chdir(folder / "copy")
    Path("abp.toml").write_text(_GRANTING)  # another place
    assert not _is_granted(Options.load())
    Path("abp.toml").unlink()
    assert abp("mcp", "--trust").status == 2


@each_row(
    ("settings", "said"),
    [
        ('[apps.crm]\nurl = "https://crm.example/"\ntransprot = "websocket"\n', "did you mean transport?"),
        ('[mcp]\nap = ["crm"]\n', "mcp.ap"),
    ],
)
def test_trust_rejects_invalid_config_file(folder: Path, abp: CommandLine, settings: str, said: str) -> None:
    (folder / "abp.toml").write_text(settings)
    ran = abp("mcp", "--trust")
    assert ran.status == 2 and said in ran.err and "Trusted" not in ran.out


def test_adapter_option_requires_exactly_one_app(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    own, elsewhere = folder / "own.js", tmp_path_factory.mktemp("elsewhere") / "own.js"
    for script in (own, elsewhere):
        script.write_text("abp.capability('x', {}, () => 1)")
    file = Path("abp.toml")
    file.write_text('[mcp]\napps = ["http://a.example/"]\nadapter = "own.js"\n')
    assert Options.load(config=file).adapter == Path("own.js")
    assert Options.load(config=file, adapter=elsewhere).adapter == elsewhere
    with pytest.raises(UsageError, match="and 2 are given"):
        Options.load(config=file, apps=["http://a.example/", "http://b.example/"])
    assert Options.load(apps=["http://a.example/"]).adapter is None  # of a file that was only found


async def test_configured_app_gets_its_adapter(serve: Serve, tmp_path: Path) -> None:
    script = tmp_path / "own.js"
    script.write_text("abp.capability('x', {}, () => 1)")
    given: list[object] = []

    class Adapted(Apps):
        def __call__(self, target: str, **options: Any) -> Session:
            given.append((target, options.pop("adapter", None)))
            return super().__call__(target, **options)

    options = {"apps": ("http://a.example/",), "adapter": script}
    async with serve(Adapted(), connected=False, options=options) as client:
        await client.list_tools()
        await called(client, "abp_connect", url=URL)
    assert given == [("http://a.example/", script), (URL, None)]


# --- hosts ------------------------------------------------------------------------------------------------------------


async def test_connect_is_limited_to_allowed_hosts(serve: Serve) -> None:
    urls = [
        ("ws://app.example/abp", True),
        ("https://APP.example./", True),
        ("ws://deep.app.example/", True),
        ("ws://127.0.0.1:8000/", True),
        ("ws://127.1:8000/", True),
        ("ws://[0:0:0:0:0:0:0:1]:9/", True),
        ("ws://[::2]:9/", False),
        ("ws://127.0.0.1:8001/", False),
        ("ws://other.example/", False),
        ("ws://bad.app.example/", False),
        ("ws://BAD.app.example./", False),
        ("ws://other.example\\@app.example/", False),
        ("ws://app.example@other.example/", False),
        ("ws://user@app.example/", False),
        ("ws://%61pp.example/", False),
        ("ws://ａpp.example/", False),
        ("ws://app.example\t.evil.example/", False),
        ("ws:///abp", False),
        ("ws://app.example:99999/", False),
    ]
    rules = {
        "allowed_hosts": ("app.example", "*.app.example", "127.0.0.1:8000", "::1"),
        "blocked_hosts": ("bad.*",),
    }
    async with serve(connected=False, options=rules) as client:
        for url, allowed in urls:
            answer = await client.call_tool("abp_connect", {"url": url})
            assert answer.is_error is not allowed, words(answer)
            if not allowed:
                assert answer.structured_content["error"]["code"] == "INVALID_PARAMS"


async def test_blocked_host_is_rejected_in_any_spelling(serve: Serve) -> None:
    async with serve(connected=False, options={"blocked_hosts": ("127.*", "localhost")}) as client:
        hosts = ("127.0.0.1", "2130706433", "0x7f.1", "0177.0.0.1", "localhost", "LOCALHOST.", "[::ffff:127.0.0.1]")
        for host in hosts:
            answer = await client.call_tool("abp_connect", {"url": f"ws://{host}/"})
            assert answer.is_error and "may not be connected" in words(answer), host
        await called(client, "abp_connect", url=URL)
    async with serve(connected=False) as client:  # without rules an address may hold a user
        await called(client, "abp_connect", url="ws://user:secret@app.example/")


async def test_screenshot_is_limited_to_public_and_allowed_addresses(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(**options: Any) -> None:
        raise UsageError("a browser is started")

    monkeypatch.setattr("transports.playwright.PictureBrowser", started)
    refused = {
        "http://127.0.0.1:8000/": "not on the public Internet",
        "http://2130706433/": "not on the public Internet",
        "http://169.254.169.254/latest/meta-data": "not on the public Internet",
        "http://[::1]/": "not on the public Internet",
        "http://localhost/": "not on the public Internet",
        "http://bad.example/": "may not be connected",
        "file:///etc/passwd": "plain name",
    }
    async with serve(connected=False, options={"blocked_hosts": ("bad.*",)}) as client:

        async def said(url: str, **more: object) -> str:
            answer = await client.call_tool("abp_screenshot", {"url": url, **more})
            assert answer.is_error
            return words(answer)

        for url, reason in refused.items():
            assert reason in await said(url), url
        assert "a browser is started" in await said("https://1.1.1.1/")
        assert "mutually exclusive" in await said("https://1.1.1.1/", session="a")
        for wrong in ({"width": 1921}, {"height": 0}, {"options": {"path": "/tmp/x"}}):
            assert "INVALID_PARAMS" in await said("https://1.1.1.1/", **wrong)
        await called(client, "abp_connect", url="ws://127.0.0.1:8000/abp")
        assert "a browser is started" in await said("http://127.0.0.1:8000/page")  # where an app is
        assert "not on the public Internet" in await said("http://127.0.0.1:8001/")
        monkeypatch.setenv("ABP_ALLOW_PRIVATE_ADDRESSES", "1")
        assert "a browser is started" in await said("http://127.0.0.1:8001/")
    monkeypatch.delenv("ABP_ALLOW_PRIVATE_ADDRESSES")
    async with serve(connected=False, options={"allowed_hosts": ("127.*",)}) as client:
        assert "a browser is started" in await said("http://127.0.0.1:8001/")
        assert "may not be connected" in await said("https://1.1.1.1/")


# --- tools ------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R4-10e")
async def test_hidden_tool_name_hides_all_capabilities_mapped_to_it(serve: Serve) -> None:
    apps = giving(**dict.fromkeys(("delete.all", "delete_all", "delete all", "call", "keep"), "done"))
    for pattern in ("abp_delete_all", "abp_delete_all_[23]"):
        async with serve(apps, options={"hide_tools": (pattern, "abp_call_2", "abp_scr*")}) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert {"abp_call", "abp_keep"} <= names and not names & {"abp_call_2", "abp_screenshot"}
            expected = {"abp_delete_all"} if "[" in pattern else set()
            assert {name for name in names if "delete" in name} == expected
            for hidden in ("abp_delete_all_2", "abp_delete_all_3", "abp_call_2", "abp_screenshot"):
                with pytest.raises(MCPError, match="unknown tool"):
                    await client.call_tool(hidden, {})
            answers = [
                await client.call_tool("abp_call", {"capability": name})
                for name in ("delete.all", "delete_all", "delete all", "call", "keep")
            ]
            assert [answer.is_error for answer in answers] == [not expected, True, True, True, False]
            assert "may not be called" in words(answers[1])
    async with serve(apps, options={"show_tools": ("abp_connect", "abp_k*")}) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["abp_connect", "abp_keep"]


# --- artifacts --------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R4-10c", "R4-10d")
async def test_read_limits_set_large_file_warning_and_auto_read(serve: Serve) -> None:
    limits = [
        ({}, (False, True)),
        ({"large_file_threshold_tokens": 3}, (True, False)),
        ({"max_auto_read_size_bytes": 14}, (False, False)),
    ]
    for options, expected in limits:
        async with serve(options=options) as client:
            answer = await client.call_tool("abp_text_shout", {"text": "hello"})  # {"text":"HELLO"}: 16 bytes
            assert not answer.is_error
            resource = (await client.list_resources()).resources[0]
            (entry,) = (await called(client, "abp_artifacts", limit=1))["artifacts"]
            for about in (resource.meta, entry):
                assert about and (about["large_file_warning"], about["auto_read_safe"]) == expected, options


@pytest.mark.requirement("R4-10e")
async def test_file_tools_can_be_disabled(serve: Serve) -> None:
    async with serve(options={"enable_file_tools": False}) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert not {"abp_artifacts", "abp_read_artifact"} & set(tools)
        assert not any("files" in tools[name].input_schema["properties"] for name in ("abp_call", "abp_file_digest"))
        assert client.instructions and "abp_read_artifact" not in client.instructions
        for hidden in ("abp_artifacts", "abp_read_artifact"):
            with pytest.raises(MCPError, match="unknown tool"):
                await client.call_tool(hidden, {"id": "a"})
        files = [{"param": "text", "content": "QQ=="}]
        refused = await client.call_tool("abp_call", {"capability": "text.shout", "files": files})
        assert refused.is_error and "files" in words(refused)
        await client.call_tool("abp_text_shout", {"text": "a", "files": files})  # the app's own parameter, if any
        assert len((await client.list_resources()).resources) == 1  # nothing was stored of it


@pytest.mark.requirement("R4-10f")
async def test_artifact_resources_can_be_disabled(serve: Serve) -> None:
    async with serve(options={"enable_artifact_resources": False}) as client:
        answer = await client.call_tool("abp_text_shout", {"text": "hi"})
        assert [type(item) for item in answer.content] == [TextContent]
        (artifact,) = files_of(answer.structured_content)
        assert (await client.list_resources()).resources == []
        assert (await client.list_resource_templates()).resource_templates == []
        with pytest.raises(MCPError, match="enable_artifact_resources"):
            await client.read_resource(artifact["uri"])
        assert await read_with_tool(client, artifact["id"]) == b'{"text":"HI"}'


# --- files and browsers -----------------------------------------------------------------------------------------------


@pytest.mark.requirement("R4-9e", "R4-9f", "R4-10a", "R4-10b")
@each_row(
    ("options", "files", "said"),
    [
        ({"max_file_bytes": 3}, [b"1234"], "at most 3"),
        ({"max_files": 1}, [b"1", b"2"], "at most 1"),
        ({"allowed_types": ("image/*",)}, [b"text"], "image/*"),
        ({"allowed_types": ("text/*",)}, [b"%PDF-1.7 says it is text"], "application/pdf"),
    ],
)
async def test_input_files_over_limits_are_rejected(
    serve: Serve, options: dict[str, Any], files: list[bytes], said: str
) -> None:
    given = [
        {"param": f"file{at}", "mime_type": "text/plain", "content": base64.b64encode(data).decode()}
        for at, data in enumerate(files)
    ]
    async with serve(options=options) as client:
        answer = await client.call_tool("abp_file_digest", {"files": given})
        assert answer.is_error and said in words(answer)
        assert (await called(client, "abp_artifacts"))["total"] == 0


@each_row(("set_to", "asked", "got"), [(None, False, False), (True, False, True), (False, True, False)])
async def test_operator_decides_whether_browser_is_headless(
    serve: Serve, set_to: bool | None, asked: bool, got: bool
) -> None:
    seen: list[object] = []
    apps = Apps()

    def connect(target: str, **options: Any) -> Any:
        seen.append(options.get("headless"))
        return apps(target, **options)

    async with serve(connect, connected=False, options={"headless": set_to}) as client:
        await called(client, "abp_connect", url=URL, headless=asked)
    assert seen == [got]


async def test_unreachable_configured_app_is_reported(serve: Serve) -> None:
    class Some(Apps):
        def __call__(self, target: str, **options: Any) -> Any:
            if "gone" in target:
                raise UsageError("nobody lives there")
            return super().__call__(target, **options)

    apps = (URL, "ws://gone.test/", URL)
    async with serve(Some(), connected=False, options={"apps": apps}) as client:
        await client.list_tools()
        assert len((await called(client, "abp_status"))["sessions"]) == 2
    async with serve(Some(), connected=False, options={"apps": ("ws://gone.test/",)}) as client:
        answer = await client.call_tool("abp_status", {})
        assert answer.is_error and "ws://gone.test/ could not be connected: nobody lives there" in words(answer)


def test_config_is_not_trusted_if_the_disk_is_full(folder: Path) -> None:
    resource = pytest.importorskip("resource", reason="Windows has no limits")
    (folder / "abp.toml").write_text(_GRANTING)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5, limits[1]))
    try:
        with pytest.raises(UsageError, match=r"the record of trust cannot be written: File too large"):
            trust(folder / "abp.toml", _GRANTING.encode())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not _is_granted(Options.load())
