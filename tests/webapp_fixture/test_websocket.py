"""The reference app over WebSocket, met by a plain client. No part of `transports` is used here."""

import asyncio
import base64
import gzip
import hashlib
import io
import json
import time
import wave
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, ConnectionClosedError, InvalidStatus

from tests.support.eventually import eventually
from webapp_fixture import Fixture, block, digest, generate, serve

AGENT = {"agent": {"name": "test", "version": "1"}, "protocolVersion": "0.1"}
SOON = 5.0


class Client:
    """Messages as dicts over one connection."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.others: list[dict[str, Any]] = []
        self.count = 0

    async def send(self, kind: str, payload: Any = None) -> str:
        self.count += 1
        message = {"type": kind, "id": f"m{self.count}", "timestamp": 0, "payload": payload}
        await self.socket.send(json.dumps(message))
        return f"m{self.count}"

    async def start(self, name: str, options: dict[str, Any] | None = None, /, **params: Any) -> str:
        return await self.send("capabilities/call", {"capability": name, "params": params, "options": options or {}})

    async def receive(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(await asyncio.wait_for(self.socket.recv(), SOON))
        assert message["type"] and abs(message["timestamp"] / 1000 - time.time()) < 60
        return message

    async def until(self, message_id: str) -> Any:
        """The payload of the reply with that id; what comes before it is kept."""
        while (message := await self.receive()).get("id") != message_id:
            self.others.append(message)
        return message.get("payload")

    async def call(self, name: str, options: dict[str, Any] | None = None, /, **params: Any) -> Any:
        return await self.until(await self.start(name, options, **params))

    async def data(self, name: str, /, **params: Any) -> Any:
        answer = await self.call(name, **params)
        assert answer["success"] is True, answer
        return answer["data"]

    async def error(self, name: str, /, **params: Any) -> str:
        answer = await self.call(name, **params)
        assert answer["success"] is False and answer["error"]["message"], answer
        return str(answer["error"]["code"])

    async def initialize(self, **params: Any) -> Any:
        return await self.until(await self.send("initialize", {**AGENT, **params}))


@asynccontextmanager
async def dial(fixture: Fixture, query: str = "", **options: Any) -> AsyncIterator[Client]:
    """A connection without a session."""
    settings = {"compression": None, "ping_interval": None, "max_size": None, "close_timeout": 0.5, "proxy": None}
    async with connect(f"{fixture.ws_url}{query}", **{**settings, **options}) as socket:
        yield Client(socket)


@pytest.fixture
async def fixture() -> AsyncIterator[Fixture]:
    async with serve() as served:
        yield served
        await eventually(lambda: not served.sockets, within=SOON)  # the server has no connection left


@pytest.fixture
async def app(fixture: Fixture) -> AsyncIterator[Client]:
    async with dial(fixture) as client:
        await client.initialize()
        yield client


def content(binary: dict[str, Any]) -> bytes:
    """The bytes of a BinaryData; its declared size must be true."""
    text, encoding = binary["content"], binary["encoding"]
    assert encoding in ("base64", "utf-8")
    data: bytes = base64.b64decode(text, validate=True) if encoding == "base64" else text.encode()
    assert len(data) == binary["size"]
    return data


# The session and its envelope


async def test_initialize_rejects_missing_agent_and_unknown_version(fixture: Fixture) -> None:
    async with dial(fixture) as client:
        assert (await client.initialize(agent=None))["error"]["code"] == "MISSING_PARAM"
        assert (await client.initialize(protocolVersion="1.0"))["error"]["code"] == "NOT_SUPPORTED"


async def test_lone_surrogate_in_invalid_params_ends_no_connection(fixture: Fixture) -> None:
    async with dial(fixture, "?faults") as client:
        await client.initialize()
        assert await client.error("wire.close", code="\ud800") == "INVALID_PARAMS"
        assert await client.error("shape", shape="\ud800") == "INVALID_PARAMS"


async def test_credentials(fixture: Fixture) -> None:
    bearer = {"Authorization": f"Bearer {fixture.token}"}
    for query, headers in (("?auth=bearer", bearer), (f"?token={fixture.token}", {})):
        async with dial(fixture, query, additional_headers=headers) as client:
            assert (await client.initialize())["sessionId"]
    for query, headers in (("?auth=bearer", {}), ("?auth=bearer", {"Authorization": "Bearer no"}), ("?token=no", {})):
        with pytest.raises(InvalidStatus) as refused:
            async with dial(fixture, query, additional_headers=headers):
                pass
        assert refused.value.response.status_code == 401
    assert len(fixture.handshakes) == 5 and fixture.handshakes[0].headers["authorization"] == bearer["Authorization"]


@pytest.mark.parametrize(("frame", "code"), [("{", 1007), ("[" * 100_000, 1007), (b"{}", 1003)])
async def test_invalid_frames_close_connection(app: Client, frame: str | bytes, code: int) -> None:
    await app.socket.send(frame)
    with pytest.raises(ConnectionClosedError):
        await app.receive()
    assert app.socket.close_code == code


# Capabilities


async def test_html_is_converted_to_pdf(app: Client) -> None:
    html = "<h1>Hi (you)</h1><script>no</script><p>caf\u00e9"
    pdf = await app.data("export.pdf", html=html, options={"landscape": True})
    data = content(pdf["document"])
    assert data.startswith(b"%PDF-1.4") and b"(Hi \\(you\\)) Tj" in data and b"caf\xe9" in data and b"no" not in data
    assert b"[0 0 842 595]" in data and pdf["title"] == "Hi (you)" and pdf["document"]["filename"] == "hi-you.pdf"
    for offset in (int(line.split()[0]) for line in data.split(b"xref")[1].splitlines() if line.endswith(b" n ")):
        assert data[offset:].split(b" ", 2)[1:2] == [b"0"]


async def test_markdown_is_rendered_without_scripts(app: Client) -> None:
    markdown = "# A *title* & more\n\n[good](https://e.example/) [bad](javascript:alert(1)) <b>html</b>\n"
    data = await app.data("convert.markdownToHtml", markdown=markdown)
    html = data["html"]["content"]
    assert "<h1>A <em>title</em> &amp; more</h1>" in html and '<a href="https://e.example/">good</a>' in html
    assert 'href="javascript' not in html and "<b>" not in html
    assert (data["title"], data["words"], data["html"]["filename"]) == ("A title & more", 11, "a-title-more.html")
    document = (await app.data("export.html", markdown=markdown, title="<T>"))["document"]["content"]
    assert "<title>&lt;T&gt;</title>" in document and html in document


async def test_socket_specific_capabilities_answer(app: Client) -> None:
    tone = await app.data("audio.tone", seconds=0.1, sampleRate=8000)
    with wave.open(io.BytesIO(content(tone["audio"]))) as sound:
        assert (sound.getframerate(), sound.getnframes(), sound.getsampwidth()) == (8000, 800, 2)
    packed = content((await app.data("archive.gzip", text="ab" * 1000))["archive"])
    assert gzip.decompress(packed) == b"ab" * 1000 and packed[4:8] == bytes(4)  # no time in it
    assert content((await app.data("shape", shape="base64", size=700))["file"]) == bytes(n % 251 for n in range(700))
    assert (await app.data("shape", shape="nonAscii"))["ключ 🎵"] == "value"
    assert [file["name"] for file in (await app.data("file.list"))["files"]] == ["welcome.md", "sales.csv"]


@pytest.mark.load
@pytest.mark.requirement("R1-9c")
async def test_generated_files(app: Client, fixture: Fixture) -> None:
    for form in ("base64", "buffer", "blob"):
        made = await app.data("file.generate", megabytes=1.5, seed=7, digest=True, **{"as": form})
        assert hashlib.sha256(content(made["file"])).hexdigest() == digest(3 << 19, 7) == made["sha256"]
    assert content((await app.data("file.generate", megabytes=3))["file"])[-(1 << 20) :] == block(2)
    assert (await app.data("file.generate", bytes=3, **{"as": "dataUrl"}))["file"]["downloadUrl"].startswith("data:")
    assert await app.error("file.generate", megabytes=257) == "INVALID_PARAMS"
    assert await app.error("file.generate", bytes=1, **{"as": "blobUrl"}) == "INVALID_PARAMS"
    assert await app.error("file.generate") == "MISSING_PARAM"
    async with aiohttp.ClientSession() as session:
        for auth in ("none", "bearer", "bearerLine", "bearerToken", "query"):
            wanted = {"as": "url", "auth": auth, "absolute": True, "filename": "a b.bin", "expiresIn": 60}
            file = (await app.data("file.generate", bytes=2000, seed=1, **wanted))["file"]
            key: dict[str, str] = file.get("auth", {})
            header = key.get("header", f"Bearer {key.get('token')}")
            name, value = header.split(": ") if ": " in header else ("Authorization", header)
            url = file["downloadUrl"] + (f"&token={key['token']}" if auth == "query" else "")
            async with session.get(url, headers={name: value} if key else {}) as response:
                assert response.status == 200 and await response.read() == b"".join(generate(2000, 1))
            if key:
                async with session.get(file["downloadUrl"]) as response:
                    assert response.status == 401
                async with session.get(f"{url}x", headers={name: f"{value}x"}) as response:
                    assert response.status == 403
    relative = (await app.data("file.generate", bytes=1, **{"as": "url", "auth": "cookie"}))["file"]["downloadUrl"]
    assert relative.startswith("/downloads/1/0/generated.bin?auth=cookie")
    assert app.socket.response is not None and "workbench_session=" in app.socket.response.headers["Set-Cookie"]


@pytest.mark.slow
@pytest.mark.requirement("R1-9a")
@pytest.mark.requirement("R1-2c", "R1-2d", "R1-13c", "R1-13d", "R1-13f")
async def test_auto_form_serves_files_over_10_mb_as_hour_long_downloads(app: Client) -> None:
    small, large = [
        (await app.data("file.generate", bytes=size, **{"as": "auto"}))["file"] for size in (10 << 20, (10 << 20) + 1)
    ]
    assert len(content(small)) == 10 << 20 and small.keys() == {"content", "encoding", "mimeType", "size", "filename"}
    assert large["downloadUrl"].startswith("/downloads/10485761/") and "content" not in large
    assert large["size"] == (10 << 20) + 1 and large["expiresAt"] / 1000 - time.time() > 3500


# What happens during calls


async def test_fixture_respects_missing_client_features(fixture: Fixture) -> None:
    async with dial(fixture) as client:
        session = await client.initialize(features={"notifications": False, "progress": False, "elicitation": False})
        assert not [one for one in session["capabilities"] if one["name"].startswith(("fault.", "wire."))]
        await client.data("job.run", steps=2, delay=0)
        response = (await client.data("form.ask", method="elicitation/input", params={}))["response"]
        assert response["error"]["code"] == "NOT_SUPPORTED" and client.others == []


async def test_questions(app: Client) -> None:
    async def answer_with(call: str, payload: Any) -> Any:
        request = await app.receive()
        assert request["type"] == "elicitation/request"
        response = {"type": "elicitation/response", "id": request["id"], "timestamp": 0, "payload": payload}
        await app.socket.send(json.dumps(response))
        return request["payload"], await app.until(call)

    call = await app.start("form.ask", method="elicitation/input", params={"message": "?"}, timeout=2000)
    asked, answer = await answer_with(call, {"success": True, "data": {"value": 4}})
    assert asked == {"method": "elicitation/input", "params": {"message": "?"}, "timeout": 2000}
    assert answer["data"] == {"response": {"success": True, "data": {"value": 4}}}
    _, answer = await answer_with(await app.start("files.clear"), {"success": True, "data": {"confirmed": False}})
    assert answer["cancelled"] is True
    asked, answer = await answer_with(await app.start("files.clear"), {"success": True, "data": {"confirmed": True}})
    assert asked["method"] == "elicitation/confirm" and answer["data"] == {"cleared": 2}
    assert (await app.data("file.list"))["files"] == []
    response = (await app.data("form.ask", method="m", params={}, timeout=20))["response"]
    assert response["error"]["code"] == "TIMEOUT"


# The end


async def test_fixture_server_stops_with_open_sockets() -> None:
    async with serve() as fixture:
        idle, silent, busy = dial(fixture), dial(fixture), dial(fixture)
        clients = [await manager.__aenter__() for manager in (idle, silent, busy)]
        for client in clients:
            await client.initialize()
        await clients[1].start("wire.silent")
        await clients[2].start("fault.never")
        await clients[2].start("wire.slow")
        await asyncio.sleep(0.05)
        started = time.monotonic()
    assert time.monotonic() - started < 5 and not fixture.sockets
    with pytest.raises(ConnectionClosed) as closed:
        await clients[0].receive()
    assert closed.value.rcvd is not None and closed.value.rcvd.code == 1001
    for manager in (idle, silent, busy):
        await manager.__aexit__(None, None, None)
