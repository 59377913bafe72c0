"""Which server a target means: commands, addresses, the files that agents keep. And the blocking API."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import in_thread
from tests.support.mcp_over_http import tableau_server
from tests.support.mcp_servers import configured
from tests.support.mcp_servers.tableau import PDF, VIEW
from tests.support.rows import each_row
from transports import UsageError, WebSocketTransport, connect
from transports.errors import ConnectFailed
from transports.mcp._servers import HttpServer, StdioServer, parse_server
from transports.mcp._transport import MCPTransport
from transports.sync import connect as connect_blocking


@pytest.mark.parametrize(
    ("target", "server"),
    [
        ("mcp+stdio:npx -y 'a server' --dir=\"/tmp/x y\"", StdioServer("npx", ("-y", "a server", "--dir=/tmp/x y"))),
        ("MCP+STDIO:echo $HOME; rm -rf /", StdioServer("echo", ("$HOME;", "rm", "-rf", "/"))),
        ("mcp+https://mcp.example/mcp?x=1", HttpServer("https://mcp.example/mcp?x=1")),
    ],
)
def test_commands_are_shell_split_and_urls_are_kept(target: str, server: object) -> None:
    assert parse_server(target) == server


def test_servers_are_read_from_mcp_config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "k1")
    monkeypatch.delenv("UNSET", raising=False)
    where = configured(
        tmp_path,
        {
            "git": {
                "command": "uvx",
                "args": ["mcp-server-git", "${UNSET:-x}"],
                "env": {"K": "${env:KEY}"},
                "cwd": "/tmp",
            },
            "far": {"type": "http", "url": "https://h/${KEY}", "headers": {"Authorization": "Bearer ${KEY}"}},
            "gemini": {"httpUrl": "https://g/mcp"},
            "remote": {"command": "npx", "args": ["mcp-remote", "Authorization:${T}"], "env": {"T": "Bearer ${KEY}"}},
        },
    )
    assert parse_server(f"{where}#git") == StdioServer("uvx", ("mcp-server-git", "x"), {"K": "k1"}, Path("/tmp"), "git")
    far = parse_server(f"{where}#far", {"X": "y"})
    assert far == HttpServer("https://h/k1", {"Authorization": "Bearer k1", "X": "y"}, "far")
    assert "k1" not in repr(far).replace("https://h/k1", "")
    assert parse_server(f"{where}#gemini") == HttpServer("https://g/mcp", {}, "gemini")
    remote = parse_server(f"{where}#remote")
    assert remote == StdioServer("npx", ("mcp-remote", "Authorization:Bearer k1"), {"T": "Bearer k1"}, name="remote")
    only = configured(tmp_path, {"one": {"command": "x"}}, "servers")  # the key of VS Code
    assert parse_server(only) == StdioServer("x", name="one")


@pytest.mark.parametrize(
    ("servers", "name", "says"),
    [
        ({}, "", "lists no servers"),
        ([], "", "lists no servers"),
        ({"a": {"command": "x"}, "b": {"command": "x"}}, "", "it has 'a', 'b'"),
        ({"a": {"command": "x"}}, "#c", "no server 'c'"),
        ({"a": {}}, "", "neither a command nor a url"),
        ({"a": {"command": "x", "args": "y"}}, "", "args must be a list"),
        ({"a": {"command": "x", "env": {"a": 1}}}, "", "env must be an object of strings"),
        ({"a": {"command": "x", "cwd": 1}}, "", "cwd must be a string"),
        ({"a": {"url": "ftp://x/"}}, "", "not an address"),
        ({"a": {"type": "sse", "url": "http://x/"}}, "", "replaced by streamable HTTP"),
        ({"a": {"command": "${NOT_SET_HERE}"}}, "", "NOT_SET_HERE, which is not set"),
        ({"a": {"command": "x", "env": {"K": "${input:key}"}}}, "", r"env needs \$\{input:key\}, which only an editor"),
    ],
)
def test_invalid_mcp_config_entries_are_rejected(tmp_path: Path, servers: Any, name: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse_server(configured(tmp_path, servers) + name)
    (tmp_path / "mcp.json").write_text("{\n// my servers")
    with pytest.raises(UsageError, match=r"is not JSON \(line 2: .*no comments"):
        parse_server(f"mcp:{tmp_path / 'mcp.json'}#x")


def test_env_file_of_an_entry_is_not_read_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    parse_server(configured(tmp_path, {"a": {"command": "x", "envFile": "${workspaceFolder}/.env"}}))
    (warning,) = caplog.messages
    assert warning == f"a in {tmp_path / 'mcp.json'}: envFile is not read; put its variables into env"


@each_row(
    ("where", "says"),
    [
        ("mcp+stdio:", "names no command"),
        ("mcp+stdio:'unclosed", "cannot be split"),
        ("mcp+http://", "not an address"),
        ("mcp+http://[", "not an address"),
        ("mcp:/nowhere/mcp.json#x", "cannot be read"),
        ("mcp+ftp://x", "is not a target"),
    ],
)
def test_invalid_mcp_targets_are_rejected(where: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        connect(where, store="none:")


def test_options_not_matching_mcp_target_are_rejected() -> None:
    with pytest.raises(UsageError, match=r"headers= are for servers behind an address"):
        connect("mcp+stdio:x", headers={"a": "b"}, store="none:")
    with pytest.raises(UsageError, match=r"profile= cannot be combined with an MCP server"):
        connect("mcp+stdio:x", profile="/tmp/p", store="none:")
    with pytest.raises(UsageError, match=r"headers= cannot be combined with a page"):
        connect("http://127.0.0.1/", headers={"a": "b"}, store="none:")
    assert isinstance(connect("ws://127.0.0.1/", headers={"a": "b"}, store="none:").transport, WebSocketTransport)
    assert isinstance(connect("mcp+http://h/", transport="mcp", store="none:").transport, MCPTransport)
    with pytest.raises(UsageError, match="auth="):
        MCPTransport("mcp+stdio:x", auth=object())  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="'http://h/' is not an MCP server"):
        MCPTransport("http://h/")


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("ALL_PROXY", "ftp://user:s3cret@127.0.0.1:1", "the address of a proxy is not valid; correct HTTP_PROXY"),
        ("SSL_CERT_FILE", "/nonexistent.pem", "No such file or directory; correct .* SSL_CERT_FILE"),
    ],
)
async def test_unusable_proxy_or_certificate_of_environment_is_named(
    name: str, value: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConnectFailed, match=says) as failed:
        await connect("mcp+http://127.0.0.1:1/mcp", store="none:")
    assert "s3cret" not in str(failed.value)


@pytest.mark.load
def test_sync_api_connects_to_mcp_server(tmp_path: Path) -> None:
    with in_thread(tableau_server()) as target, connect_blocking(target, store=tmp_path) as session:
        assert session.resources.available
        assert len(session.resources.list()) == 26
        ref = session.resources.read("tableau://files/7.pdf").artifacts["contents.0.blob"]
        assert ref.sha256 == hashlib.sha256(PDF).hexdigest()
        session.resources.subscribe(VIEW)
        session.resources.unsubscribe(VIEW)


@each_row(
    ("name", "value", "says"),
    [
        ("X-Key", "my-caf\u00e9", "a character beyond ASCII"),
        ("X-Key", "my-a\r\nb", "a line end"),
        ("X-Key", "my-a\n", "a line end"),
        ("X Key", "a", "'X Key' of .* is not the name of a header"),
        ("", "a", "'' of .* is not the name of a header"),
        ("Content-Length", "5", "'Content-Length' of .* leave it out"),
        ("transfer-encoding", "chunked", "'transfer-encoding' of .* leave it out"),
    ],
)
async def test_header_that_cannot_be_sent_is_named(name: str, value: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as unsendable:
        await connect("mcp+http://127.0.0.1:9/", headers={name: value}, store="none:")
    assert "my-" not in unsendable.value.message
