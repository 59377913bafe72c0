"""The strict WebSocket of ``abp conformance``: what each broken frame is called, and that nothing else is found."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from transports import ABPError, Disconnected
from transports.testing.conformance._gather import StrictWebSocket
from transports.testing.contract._behaviour import call_message, initialize_request
from webapp_fixture import Fixture, serve


@pytest_asyncio.fixture
async def fixture() -> AsyncIterator[Fixture]:
    async with serve() as served:
        yield served


async def findings_after(fixture: Fixture, capability: str, timeout: float = 2) -> list[str]:
    findings: list[str] = []
    async with StrictWebSocket(fixture.ws_url, timeout=5, findings=findings, untimed=findings) as transport:
        await transport.request(initialize_request(), timeout=5)
        with contextlib.suppress(ABPError):
            await transport.request(call_message(capability, "1", megabytes=1), timeout=timeout)
        with contextlib.suppress(ABPError):
            await transport.request(call_message("file.list", "2"), timeout=5)
    return findings


@pytest.mark.parametrize(
    ("capability", "finding"),
    [
        ("wire.cut", "the connection broke off without a closing frame"),
        ("wire.no_close", "the connection broke off without a closing frame"),
        ("wire.duplicate", "it answered the same capabilities/call-result twice"),
        ("wire.foreign", "a capabilities/call-result has an id that no request had"),
        ("wire.unknown_type", "it sent a message of the type 'workbench/weather', which ABP does not know"),
        ("wire.invalid_utf8", "it sent a text frame that is not UTF-8"),
        ("wire.deflate_bomb", "it sent frames that break RFC 6455"),
        ("wire.binary_frame", "it sent a binary frame"),
        ("wire.untimed", "capabilities/call-result"),
    ],
)
async def test_broken_frame_is_reported_once(fixture: Fixture, capability: str, finding: str) -> None:
    assert await findings_after(fixture, capability) == [finding]


@pytest.mark.load
async def test_non_json_text_is_reported_as_finding(fixture: Fixture) -> None:
    (finding,) = await findings_after(fixture, "wire.bad_json", timeout=0.3)
    assert finding.startswith("it sent text that is not JSON (")


@pytest.mark.parametrize("capability", ["data.json", "job.run", "wire.huge", "wire.close"])
async def test_allowed_protocol_variations_have_no_findings(fixture: Fixture, capability: str) -> None:
    assert await findings_after(fixture, capability) == []


async def test_broken_connection_is_not_reopened(fixture: Fixture) -> None:
    async with StrictWebSocket(fixture.ws_url, timeout=5, findings=[], untimed=[]) as transport:
        await transport.request(initialize_request(), timeout=5)
        with pytest.raises(Disconnected, match="the app closed it with 1011 on purpose"):
            await transport.request(call_message("wire.close", "1"), timeout=5)
        with pytest.raises(Disconnected):
            await transport.request(call_message("file.list", "2"), timeout=5)
    assert len(fixture.handshakes) == 1
