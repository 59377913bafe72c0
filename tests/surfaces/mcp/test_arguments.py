"""Whatever a model gives to a tool of the bridge, the answer is a result that it can read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from mcp.shared.exceptions import MCPError
from mcp_types import TextContent

from tests.support.foreign import json_values
from tests.support.mcp_clients import Serve, called, files_of, giving, words
from transports import BinaryData
from transports.surfaces.mcp._tool_list import FIXED_TOOLS

UNEXPECTED = "should not have happened"


@pytest.mark.slow
@pytest.mark.parametrize("tool", FIXED_TOOLS)
@settings(deadline=None, max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
async def test_any_arguments_produce_a_result(serve: Serve, tool: str, data: Any) -> None:
    async with serve(giving(make=BinaryData.from_bytes(b"hello", mime_type="text/plain"))) as client:
        artifact = files_of(await called(client, "abp_make"))[0]["id"]
        valid = {"id": artifact, "capability": "make", "call": "x", "html": "<p>Hi</p>"}
        properties = FIXED_TOOLS[tool].input_schema["properties"]
        for _ in range(15):
            arguments = data.draw(json_values(properties))
            needed = {name: value for name, value in valid.items() if name in properties}
            for given_arguments in (arguments, {**arguments, **needed}):
                answer = await client.call_tool(tool, given_arguments)
                assert UNEXPECTED not in words(answer), (given_arguments, words(answer))


async def test_read_tool_accepts_whole_floats_and_rejects_bad_numbers(serve: Serve) -> None:
    reads: list[tuple[Mapping[str, object], str]] = [
        ({"offset": 0.0}, '"offset":0,'),
        ({"offset": 1.0, "length": 2.0}, '"offset":1,"length":2,'),
        ({"offset": 1e300}, "offset"),
        ({"offset": 1 << 60}, "offset"),
        ({"length": 1e300}, "length"),
        ({"length": 0}, "length"),
        ({"offset": True}, "offset"),
        ({"offset": None}, '"offset":0,'),
        ({"id": "a\0b"}, "no artifact"),
        ({"id": "a\ud800b"}, "half of a surrogate pair"),
    ]
    async with serve(giving(make=BinaryData.from_bytes(b"hello", mime_type="text/plain"))) as client:
        artifact = files_of(await called(client, "abp_make"))[0]["id"]
        for arguments, text in reads:
            answer = await client.call_tool("abp_read_artifact", {"id": artifact, **arguments})
            assert text in words(answer) and UNEXPECTED not in words(answer), arguments
        listed = await client.call_tool("abp_artifacts", {"limit": 5.0, "offset": 0.0})
        assert not listed.is_error and isinstance(listed.content[0], TextContent)


@pytest.mark.requirement("R4-11g")
async def test_any_resource_uri_is_answered(serve: Serve) -> None:
    async with serve(giving(make=BinaryData.from_bytes(b"hello", mime_type="text/plain"))) as client:
        uri = files_of(await called(client, "abp_make"))[0]["uri"]
        for query in ("?offset=" + "9" * 400, "?offset=" + "9" * 5000, "?offset=-1", "?length=-1", "[", "?offset=a"):
            try:
                read = await client.read_resource(uri + query)
            except MCPError as error:
                assert error.error.code == -32602, (query, error)
            else:
                assert read.contents[0].text == "", query
        for unknown in (
            "artifact://nothing_000000000000",
            "file:///etc/passwd",
            "artifact://",
            "artifact://a?offset=x",
        ):
            with pytest.raises(MCPError) as refused:
                await client.read_resource(unknown)
            assert refused.value.error.code == -32602, unknown
