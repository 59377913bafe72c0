"""Hosts that a model may reach, for apps and for pictures, and extensions that the operator has allowed."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

from ... import playwright as browsers
from ...artifacts._base import ArtifactStore
from ...base import ScreenshotOptions
from ...errors import UsageError
from ...playwright._scripts import extension_folder, extension_id
from ...protocol._plain_text import redact_url
from ...routing._result import Result
from ...routing._router import Router
from ...routing.http._addresses import canonical_address, is_public, own_addresses
from ...session._settings import Settings
from ..shared._listening import url_host
from ._options import Options

_PORTS = {"http": 80, "ws": 80, "https": 443, "wss": 443}
#: Host names that a browser does not rewrite: browsers take ``\`` for ``/``, decode ``%61`` and fold ``ａ``.
_HOST_NAME = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")


def allowed_extension(apps: Sequence[str], argument: str, value: str) -> str:
    """Return the target of an extension that a model has named. An extension is a program, so a model can choose only
    among the operator's ``apps``. ``value`` is a folder if ``argument`` is ``extensionPath``, else an id. Blocks."""
    folders: dict[str, Path] = {}
    for target in apps:
        with suppress(UsageError):
            folder = extension_folder(target)
            if folder:
                folders[target] = folder

    requested_folder: Path | None = None
    if argument == "extensionPath":
        # The value may be no valid path, or name the home of an unknown user.
        with suppress(OSError, RuntimeError, ValueError):
            requested_folder = Path(value).expanduser().resolve()
    for target, folder in folders.items():
        if folder == requested_folder:
            return target
        if argument == "extensionId" and extension_id(folder) == value:
            return target

    raise UsageError(
        f"{argument}: this extension may not be loaded, and none is downloaded; ask the user, who can allow an "
        "unpacked one with abp mcp --app extension:FOLDER",
        details={"argument": argument},
    )


def check_host(url: str, allowed: Sequence[str], blocked: Sequence[str]) -> None:
    """Refuse a URL by its host. A pattern is for a host, or for a host with a port: ``*.example.com``,
    ``127.0.0.1:8000``. With ``allowed`` ``("*",)`` and nothing blocked, any URL passes."""
    if tuple(allowed) == ("*",) and not blocked:
        return
    host, port = _host_and_port(url)
    _require_allowed(host, port, allowed, blocked)


class PictureHosts:
    """The hosts that the page of a picture may reach. A host must match a pattern of ``allowed`` and none of
    ``blocked``. A host with a non-public address must also match a pattern of ``private``, or be the host of a
    connected app; with ``any_address`` every host may have one. ``apps`` are the URLs of the connected apps, each with
    the address at which it was reached."""

    def __init__(
        self,
        allowed: Sequence[str],
        blocked: Sequence[str],
        *,
        private: Sequence[str],
        apps: Iterable[tuple[str, tuple[str, int] | None]],
        any_address: bool,
    ) -> None:
        self._allowed = allowed
        self._blocked = blocked
        # `*` allows the name of every host, not a private address.
        self._private = [pattern for pattern in private if pattern != "*"]
        web_schemes = tuple(f"{scheme}://" for scheme in _PORTS)
        self._apps = [(_host_and_port(url), reached) for url, reached in apps if url.lower().startswith(web_schemes)]
        self._any_address = any_address

    async def check(self, url: str) -> None:
        await self.addresses(*_host_and_port(url))

    async def addresses(self, host: str, port: int) -> list[str]:
        """Return the addresses to which a connection to the host may be made. Raises
        :class:`~transports.errors.UsageError` if the host is unknown or may not be connected."""
        canonical_host, canonical_port = _host_and_port(f"http://{url_host(host)}:{port}")
        _require_allowed(canonical_host, canonical_port, self._allowed, self._blocked)

        addresses = await _resolve_host(canonical_host, canonical_port)
        # A blocked address stays blocked under any name.
        for address in addresses:
            _require_allowed(canonical_address(address) or address, canonical_port, ("*",), self._blocked)

        if self._any_address or _matches_host(canonical_host, canonical_port, self._private):
            return addresses
        app_addresses = self._addresses_of_app(canonical_host, canonical_port)
        if app_addresses:
            return app_addresses

        if not all(is_public(address) for address in addresses):
            raise UsageError(
                f"{canonical_host} (port {canonical_port}) is not on the public Internet; connect an app at that "
                "address with abp_connect, or ask the user, who can allow it (allowed_hosts)"
            )
        return addresses

    def _addresses_of_app(self, host: str, port: int) -> list[str]:
        for app_host_and_port, reached in self._apps:
            if app_host_and_port == (host, port):
                app_addresses = own_addresses(host, port, reached)
                if app_addresses:
                    return sorted(app_addresses)
        return []


async def _resolve_host(host: str, port: int) -> list[str]:
    try:
        addresses = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        raise UsageError(f"{host}: unknown host name; correct the address") from None
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in addresses))


def _require_allowed(host: str, port: int, allowed: Sequence[str], blocked: Sequence[str]) -> None:
    if not _matches_host(host, port, allowed) or _matches_host(host, port, blocked):
        raise UsageError(
            f"{host} (port {port}) may not be connected; ask the user, who can allow it (allowed_hosts, blocked_hosts)"
        )


def _matches_host(host: str, port: int, patterns: Sequence[str]) -> bool:
    names = [host]
    is_ipv6 = ":" in host
    if not is_ipv6:
        names.append(f"{host}:{port}")
    return any(fnmatchcase(name, pattern.lower()) for pattern in patterns for name in names)


def _host_and_port(url: str) -> tuple[str, int]:
    """Return the host and the port of a URL. A host that browsers may read in another way is refused. An IPv6 address
    is returned without brackets."""
    invalid = UsageError(
        "url: the host must be a plain name or address, such as app.example, 127.0.0.1 or xn--…, without a user"
    )
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").rstrip(".")
        port = parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        raise invalid from None
    if "@" in parts.netloc or not host:
        raise invalid
    try:
        return _canonical_host(host), port
    except (ValueError, OSError):
        raise invalid from None


def _canonical_host(host: str) -> str:
    """Return a host in the spelling that browsers use. Raises ``ValueError`` or ``OSError`` for anything but a plain
    name or an address."""
    if ":" in host:
        address = ipaddress.IPv6Address(host)
        return str(address.ipv4_mapped or address)

    if not _HOST_NAME.fullmatch(host):
        raise ValueError("it is not a plain name")
    # Browsers read a host whose last label is a number as an IPv4 address: 127.1 and 0x7f.1 are 127.0.0.1.
    _, _, last_label = host.rpartition(".")
    if re.fullmatch(r"(0x[0-9a-f]*|\d+)", last_label):
        return socket.inet_ntoa(socket.inet_aton(host))
    return host


async def screenshot_url(
    url: str,
    screenshot_options: dict[str, object],
    *,
    options: Options,
    store: ArtifactStore,
    apps: Iterable[tuple[str, tuple[str, int] | None]],
    timeout: float | None,
) -> Result:
    """Take a picture of any page, and store it as the artifact ``image``. The page gets ``timeout`` seconds, by default
    the call timeout of the settings. The page and all its connections must follow the rules of :class:`PictureHosts`.
    For each refused connection, whose content is missing in the picture, the result has a warning."""
    settings = Settings.load()
    started = time.perf_counter()
    hosts = PictureHosts(
        options.allowed_hosts,
        options.blocked_hosts,
        private=options.private_hosts,
        apps=apps,
        any_address=settings.allow_private_addresses,
    )
    await hosts.check(url)

    if timeout is None:
        timeout = settings.call_timeout / 1000
    headless = settings.headless if options.headless is None else options.headless
    async with browsers.PictureBrowser(headless=headless, timeout=settings.browser_timeout / 1000) as browser:
        picture, refusals = await browsers.screenshot_of_url(
            browser,
            url,
            cast(ScreenshotOptions, screenshot_options),
            hosts.addresses,
            timeout=timeout,
        )

    return await Router(store).route(
        {"image": picture, "url": redact_url(url)},
        capability="screenshot",
        transport="playwright",
        started=started,
        warnings=[f"not in the picture: {reason}" for reason in refusals],
    )
