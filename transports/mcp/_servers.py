"""MCP servers and the targets that name them: a command line, an address, or an entry of a configuration file."""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from .._internal.files import expand_home, read_regular
from ..errors import ConnectFailed, UsageError, first_line, spelled
from ..protocol._http_headers import check_headers, without_secrets, without_values
from ..protocol._plain_text import redact_url
from ..protocol._strict_json import parser_limits

if TYPE_CHECKING:
    import httpx2

logger = logging.getLogger("transports.mcp")

#: ``${NAME}``, ``${NAME:-default}`` (Claude Code) and ``${env:NAME}`` (VS Code, Cursor).
_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_]\w*)(?::-([^}]*))?\}")
#: What an editor asks a person for, or looks up in its settings.
_EDITOR_VARIABLE = re.compile(r"\$\{(?:input|command|config|workspaceFolder):[^}]*\}")
#: Words of a refusal by a server that has forgotten a session.
_FORGOTTEN_SESSION = re.compile(
    rb"(?is)(?=.*\bsession)(?=.*(?:not found|not exist|no valid|invalid|unknown|expired|terminated))"
    rb"|.*\bserver not initialized"
)
#: Codes of JSON-RPC for an unknown method and for bad arguments, in a refusal that concerns only one request.
_FAULT_OF_REQUEST = re.compile(rb'"code"\s*:\s*-3260[12]\b')
#: Variables without which a program may not reach the network.
_NETWORK_VARIABLES = frozenset(
    {
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
    }
)
_URL_PASSWORD = re.compile(r"://[^/?#\s:@]*:([^/?#\s]+)@")
_SECRET_OPTION = re.compile(r"--?[\w-]*(?:key|token|secret|passw|auth|credential)[\w-]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class StdioServer:
    """An MCP server that is started as a process. ``env`` is added to the few variables that a server inherits
    (``PATH``, ``HOME``, ``HTTPS_PROXY`` …)."""

    command: str
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: Path | None = None
    name: str = ""

    def __str__(self) -> str:
        return self.name or Path(self.command).name

    def redact(self, text: str) -> str:
        # The value of a secret option is in the same argument (--token=VALUE) or in the next one.
        secrets: list[str] = []
        for arg, next_arg in zip(self.args, (*self.args[1:], ""), strict=False):
            if _SECRET_OPTION.match(arg):
                secrets += [arg.partition("=")[2], next_arg]
        # The address of a proxy may hold a password.
        secrets += [value for value in network_variables().values() if "@" in value]
        # Servers of databases take addresses with a password, too.
        for value in (*self.args, *self.env.values()):
            secrets += _URL_PASSWORD.findall(value)
        return without_secrets(text, [*secrets, *self.env.values()])


@dataclass(frozen=True, slots=True)
class HttpServer:
    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    name: str = ""

    def __str__(self) -> str:
        return self.name or redact_url(self.url)

    def redact(self, text: str) -> str:
        return without_values(text, self.url, self.headers)


Server: TypeAlias = StdioServer | HttpServer


def network_variables() -> dict[str, str]:
    """Return the environment variables that say how programs reach the network: proxies and certificates."""
    return {name: value for name, value in os.environ.items() if name.upper() in _NETWORK_VARIABLES}


def http_client(
    server: HttpServer, client_type: type[httpx2.AsyncClient] | None = None, **options: Any
) -> httpx2.AsyncClient:
    """Make a client for a server. It asks for uncompressed answers, since a small body could inflate to any size.

    Raises :class:`~transports.errors.UsageError` for a header that cannot be sent, and
    :class:`~transports.errors.ConnectFailed` for an unusable environment, such as a SOCKS proxy without its package."""
    import httpx2  # late: most servers are processes

    check_headers(server.headers, str(server))
    for name in server.headers:
        if name.lower() in ("content-length", "transfer-encoding"):
            raise UsageError(f"the header {name!r} of {server} is set for each request; leave it out")
    try:
        return (client_type or httpx2.AsyncClient)(headers={"Accept-Encoding": "identity", **server.headers}, **options)
    except (ImportError, OSError, ValueError, httpx2.InvalidURL) as error:
        if isinstance(error, ImportError):
            reason = "a SOCKS proxy needs the package socksio"
        elif isinstance(error, OSError):
            reason = first_line(error)
        else:
            # The error's own text may quote the address, with its secrets.
            reason = "the address of a proxy is not valid"
        raise ConnectFailed(
            f"{server} cannot be connected: {reason}; correct HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, SSL_CERT_FILE or "
            "SSL_CERT_DIR in the environment"
        ) from None


def has_forgotten_session(status: int, body: bytes) -> bool:
    """Whether a refusal means that the server has forgotten the session. MCP asks for status 404, but some servers
    answer 400, 401 (those in Rust) or 410."""
    text = body[:2000]
    if _FAULT_OF_REQUEST.search(text):
        return False
    if status == 400:
        return _FORGOTTEN_SESSION.match(text) is not None
    if status == 401:
        return b"session not found" in text.lower()
    return status in (404, 410)


def parse_server(target: str, headers: Mapping[str, str] | None = None) -> Server:
    """Return the server that a target names.

    - ``mcp+stdio:COMMAND ARG …`` is split by a shell's rules and never passed to a shell.
    - ``mcp+http(s)://…`` is an address.
    - ``mcp:FILE#NAME`` is an entry under ``mcpServers`` or ``servers`` of a configuration file; without ``#NAME`` the
      only one.

    ``headers`` are for addresses and override those of an entry. Raises :class:`~transports.errors.UsageError`.
    """
    scheme, _, rest = target.partition(":")
    match scheme.lower():
        case "mcp+stdio":
            server: Server = _parse_command(rest)
        case "mcp+http" | "mcp+https":
            server = _server_at(target[len("mcp+") :])
        case "mcp":
            server = _read_server(rest)
        case _:
            raise UsageError(
                f"{redact_url(target)!r} is not an MCP server; give mcp+stdio:COMMAND, mcp+https://… or mcp:FILE#NAME"
            )
    if not headers:
        return server
    if isinstance(server, StdioServer):
        raise UsageError(
            f"{spelled('headers=')} are for servers behind an address; give this one environment variables (env)"
        )
    return HttpServer(server.url, {**server.headers, **headers}, server.name)


def _parse_command(line: str) -> StdioServer:
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"mcp+stdio: the command cannot be split ({error}); quote it as for a shell") from None
    if not words or not words[0]:
        raise UsageError("mcp+stdio: names no command; give one, such as mcp+stdio:npx -y some-server")
    return StdioServer(words[0], tuple(words[1:]))


def _server_at(url: str, headers: Mapping[str, str] | None = None, name: str = "") -> HttpServer:
    try:
        parts = urlsplit(url)
        is_address = parts.scheme.lower() in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address:
        raise UsageError(f"{redact_url(url)!r} is not an address of an MCP server; give http(s)://HOST:PORT/PATH")
    return HttpServer(url, dict(headers or {}), name)


def _read_server(location: str) -> Server:
    """Read an entry of a configuration file. ``location`` is ``FILE#NAME``, or ``FILE`` if the file has one entry."""
    file = location
    name = ""
    if "#" in location:
        file, _, name = location.rpartition("#")
    entries = _read_listed_servers(file)

    if not name and len(entries) == 1:
        (name,) = entries
    entry = entries.get(name)
    if not isinstance(entry, dict):
        raise UsageError(
            f"{file} has no server {name!r}; it has {', '.join(map(repr, sorted(entries)))}: mcp:{file}#NAME"
        )
    return _server_from_entry(entry, name, f"{name} in {file}")


def _read_listed_servers(file: str) -> dict[str, object]:
    path = expand_home(file)
    try:
        # Claude Code keeps its history in the file too, so it may be large.
        text = read_regular(path, 16 << 20).decode("utf-8-sig")
        # decode_user_json() would refuse half of a surrogate pair, which texts of the history may hold.
        with parser_limits(text):
            document = json.loads(text)
    except OSError as error:
        raise UsageError(f"{file} cannot be read ({error.strerror}); give mcp:FILE#NAME") from None
    except ValueError as error:
        reason = type(error).__name__
        if isinstance(error, json.JSONDecodeError):
            reason = f"line {error.lineno}: {error.msg}"
        raise UsageError(
            f"{file} is not JSON ({reason}); correct it: no comments, and no comma before }} or ]"
        ) from None

    entries = document.get("mcpServers", document.get("servers")) if isinstance(document, dict) else None
    if not isinstance(entries, dict) or not entries:
        raise UsageError(f"{file} lists no servers; it needs an object mcpServers")
    return entries


def _server_from_entry(entry: Mapping[str, object], name: str, where: str) -> Server:
    """Make a server of an entry. Clients write the same facts under several keys. ``where`` begins error messages."""
    kind = entry.get("type", entry.get("transport"))
    if kind == "sse":
        raise UsageError(
            f"{where}: the transport sse was replaced by streamable HTTP in 2025; give its url with type http"
        )

    url = entry.get("url", entry.get("httpUrl", entry.get("serverUrl")))
    if isinstance(url, str):
        address = _expand_variables(url, where)
        return _server_at(address, _string_map(entry.get("headers"), f"{where}: headers"), name)

    if entry.get("envFile"):
        logger.warning("%s: envFile is not read; put its variables into env", where)
    command = entry.get("command")
    args = entry.get("args", [])
    cwd = entry.get("cwd")
    if not isinstance(command, str) or not command:
        raise UsageError(f"{where} has neither a command nor a url")
    if not isinstance(args, list) or not all(isinstance(arg, str) for arg in args):
        raise UsageError(f"{where}: args must be a list of strings")
    if cwd is not None and not isinstance(cwd, str):
        raise UsageError(f"{where}: cwd must be a string")

    env = _string_map(entry.get("env"), f"{where}: env")
    folder: Path | None = None
    if cwd:
        folder = expand_home(_expand_variables(cwd, where))
    return StdioServer(
        command=_expand_variables(command, where),
        # Arguments may name variables of `env`: the documentation of mcp-remote puts a token there.
        args=tuple(_expand_variables(arg, where, env) for arg in args),
        env=env,
        cwd=folder,
        name=name,
    )


def _string_map(value: object, where: str) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise UsageError(f"{where} must be an object of strings")
    return {str(key): _expand_variables(item, where) for key, item in value.items()}


def _expand_variables(text: str, where: str, env: Mapping[str, str] = MappingProxyType({})) -> str:
    """Replace the variables in a text by their values, which are looked up in ``env`` and then in the environment."""

    def value_of(variable: re.Match[str]) -> str:
        name, default = variable.groups()
        value = env.get(name, os.environ.get(name, default))
        if value is None:
            raise UsageError(f"{where} needs the environment variable {name}, which is not set")
        return value

    editor_variable = _EDITOR_VARIABLE.search(text)
    if editor_variable is not None:
        raise UsageError(
            f"{where} needs {editor_variable[0][:80]}, which only an editor fills in; use an environment variable"
        )
    return _VARIABLE.sub(value_of, text)
