"""A network of a program's own (Linux namespaces): public and private addresses, and a resolver whose answers change.

``python -m tests.support.own_network FOLDER`` makes it, downloads in it, and prints what became of each download as
JSON. Where no namespace may be made it ends with the status 77 and the reason on stdout.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import json
import os
import socket
import struct
import sys
from collections import Counter
from collections.abc import Awaitable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import cast

from tests.support.downloads import Get
from tests.support.raw_server import BODY, Answer, RawServer, cut, moved, reply
from transports.errors import ABPError
from transports.routing.http._redirects import fetch_public
from transports.session._manifest import discover

PUBLIC, PRIVATE, METADATA = "93.184.216.34", "10.0.0.5", "169.254.169.254"
NOT_ALLOWED, _PORT = 77, 8080
_NEWNS, _NEWUSER, _NEWNET = 0x00020000, 0x10000000, 0x40000000
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000
_SIOCSIFFLAGS, _SIOCSIFADDR, _SIOCSIFNETMASK, _IFF_UP = 0x8914, 0x8916, 0x891C, 1

#: The answers for each name, one after another; the last one stays.
_NAMES: Mapping[str, list[list[str]]] = {
    "files.example": [[PUBLIC]],
    "inside.example": [[PRIVATE]],
    "both.example": [[PRIVATE, PUBLIC]],
    "rebinding.example": [[PUBLIC], [PRIVATE]],
    "again.example": [[PUBLIC], [METADATA]],
    "app.example": [[PRIVATE]],
    "moved.example": [[METADATA]],
}


def _enter(folder: Path) -> None:
    """Move this process to a network of its own. Raises :class:`OSError` where that is not allowed."""
    libc = ctypes.CDLL(None, use_errno=True)

    def call(name: str, *arguments: object) -> None:
        if getattr(libc, name)(*arguments) != 0:
            raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")

    user = 0 if os.geteuid() == 0 else _NEWUSER
    identity = os.geteuid()
    call("unshare", _NEWNS | _NEWNET | user)
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {identity} 1")
    call("mount", None, b"/", None, _MS_REC | _MS_PRIVATE, None)
    for name, text in (("resolv.conf", "nameserver 127.0.0.1\noptions timeout:5\n"), ("nsswitch.conf", "hosts: dns\n")):
        if not Path("/etc", name).exists():
            continue  # its default is as good
        (folder / name).write_text(text)
        call("mount", bytes(folder / name), os.path.realpath(f"/etc/{name}").encode(), None, _MS_BIND, None)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", _IFF_UP))
        for number, address in enumerate((PUBLIC, PRIVATE, METADATA)):
            for request, value in ((_SIOCSIFADDR, address), (_SIOCSIFNETMASK, "255.255.255.255")):
                alias = f"lo:{number}".encode()
                fcntl.ioctl(sock, request, struct.pack("16sHH4s16x", alias, socket.AF_INET, 0, socket.inet_aton(value)))


class _Resolver(asyncio.DatagramProtocol):
    """A DNS server (RFC 1035) that knows :data:`_NAMES`."""

    def __init__(self) -> None:
        self._asked: Counter[str] = Counter()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)  # the loop's own is none by its class

    def datagram_received(self, data: bytes, addr: tuple[str | object, int]) -> None:
        labels, end = [], 12
        while size := data[end]:
            labels.append(data[end + 1 : end + 1 + size].decode())
            end += 1 + size
        name, (kind,) = ".".join(labels), struct.unpack("!H", data[end + 1 : end + 3])
        addresses: list[str] = []
        if kind == 1 and name in _NAMES:  # A
            answers = _NAMES[name]
            addresses = answers[min(self._asked[name], len(answers) - 1)]
            self._asked[name] += 1
        head = data[:2] + struct.pack("!HHHHH", 0x8180 if name in _NAMES else 0x8183, 1, len(addresses), 0, 0)
        records = [struct.pack("!HHHIH", 0xC00C, 1, 1, 0, 4) + socket.inet_aton(address) for address in addresses]
        self._transport.sendto(head + data[12 : end + 5] + b"".join(records), addr)


async def _outcomes(folder: Path) -> dict[str, object]:
    get = Get(folder / "store")
    servers = {address: RawServer([]) for address in (PUBLIC, PRIVATE, METADATA)}
    outcomes: dict[str, object] = {}

    async def case(name: str, work: Awaitable[object], *answers: Answer) -> None:
        for server in servers.values():
            server.connects, server.answers = 0, [reply(BODY)]
        servers[PUBLIC].answers = list(answers) or [reply(BODY)]
        try:
            done = await work
            reason = getattr(done, "reason", None)
            outcome = reason.code if reason else "OK"
        except ABPError as error:
            outcome = error.code
        outcomes[name] = [outcome, {address: server.connects for address, server in servers.items() if server.connects}]

    def fetch(name: str, **more: object) -> Awaitable[object]:
        return get(f"http://{name}:{_PORT}/f", allow_private=False, **more)  # type: ignore[arg-type]

    def public(name: str) -> Awaitable[object]:
        return fetch_public(f"http://{name}:{_PORT}/f", accept="*/*", timeout=10, max_bytes=1 << 20)

    async with AsyncExitStack() as stack:
        loop = asyncio.get_running_loop()
        resolver, _ = await loop.create_datagram_endpoint(_Resolver, local_addr=("127.0.0.1", 53))
        stack.callback(resolver.close)
        for address, raw in servers.items():
            stack.callback((await asyncio.start_server(raw.serve, address, _PORT)).close)
        await case("a public name", fetch("files.example"))
        await case("a private name", fetch("inside.example"))
        await case("a name with both", fetch("both.example"))
        await case("a redirect to a private name", fetch("files.example"), moved(f"http://inside.example:{_PORT}/"))
        await case("a redirect to an address", fetch("files.example"), moved(f"http://{METADATA}:{_PORT}/"))
        await case("a name that changes", fetch("rebinding.example"), cut(ETag='"v1"'))
        for name in ("app.example", "moved.example"):
            base = f"http://{name}:{_PORT}/index.html"
            own = fetch(name, base_url=base, server_address=(PRIVATE, _PORT))
            await case(f"the app's own name: {name}", own)
        link = reply(f'<link rel="abp-manifest" href="http://inside.example:{_PORT}/m.json">'.encode())
        await case("a manifest", discover(f"http://files.example:{_PORT}/"), link)
        await case("a resource", public("files.example"))
        await case("a private resource", public("inside.example"))
        await case("a resource of a name that changes", public("again.example"), moved("/again"))
    return outcomes


def main() -> int:
    """Print what became of each download, or why none was tried."""
    folder = Path(sys.argv[1])
    try:
        _enter(folder)
    except OSError as error:
        print(error.strerror or error)
        return NOT_ALLOWED
    print(json.dumps(asyncio.run(_outcomes(folder))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
