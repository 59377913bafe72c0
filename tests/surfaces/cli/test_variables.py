"""Variables that nothing reads: a command says so, and a server does not start with one of its own."""

from __future__ import annotations

import pytest

from tests.support.command_line import CommandLine


@pytest.mark.parametrize(
    ("command", "variable", "meant"),
    [
        ("mcp", "ABP_MCP_ALLOWED_HOST", "ABP_MCP_ALLOWED_HOSTS"),
        ("mcp", "abp_mcp_rots", "ABP_MCP_ROOTS"),
        ("serve", "ABP_SERVE_TENANT", "ABP_SERVE_TENANTS"),
    ],
)
def test_server_command_rejects_unknown_variable(
    abp: CommandLine, monkeypatch: pytest.MonkeyPatch, command: str, variable: str, meant: str
) -> None:
    if command == "mcp":
        pytest.importorskip("mcp", reason="pip install 'abp-transports[mcp]'")
    monkeypatch.setenv(variable, "x")
    ran = abp(command, "--config", "missing.toml") if command == "serve" else abp(command)
    assert ran.status == 2 and f"{variable}: nothing reads this variable; did you mean {meant}?" in ran.err


def test_kubernetes_service_variables_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    from transports.surfaces.web._access import Options

    for name in ("SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT", "PORT_8000_TCP", "PORT_8000_TCP_ADDR"):
        monkeypatch.setenv(f"ABP_SERVE_{name}", "10.0.0.1")
    assert Options.load().token is None


def test_unknown_variable_is_noted_once_by_other_commands(abp: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    note = "abp: ABP_CALL_TIMEOT: nothing reads this variable; did you mean ABP_CALL_TIMEOUT?"
    (empty,) = abp("artifacts", "list").err.splitlines()
    # those of servers concern the servers alone, and limits of the retention are known
    for name, value in (("ABP_CALL_TIMEOT", "5"), ("ABP_MCP_ALLOWED_HOST", "x"), ("ABP_RETENTION_TTL_SECONDS", "9")):
        monkeypatch.setenv(name, value)
    assert abp("artifacts", "list").err.splitlines() == [note, empty]
    assert abp("artifacts", "list", "-q").err == ""
