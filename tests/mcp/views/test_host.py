"""What a host answers to a view whose messages are not as the specification has them. No page is opened here."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tests.support.rows import each_row
from transports.mcp.views._host import Host, HostContext, ViewHandlers
from transports.protocol.binary import BinaryData

INVALID_PARAMS = -32602


class Program:
    """A host without a page, with the files that it has got."""

    def __init__(self) -> None:
        self.files: list[BinaryData] = []
        self.host = Host(
            HostContext(), {}, ViewHandlers(), relay=self.relay, save_file=self.save, current_call=lambda: None
        )

    async def save(self, file: BinaryData) -> None:
        self.files.append(file)

    async def relay(self, method: str, params: Mapping[str, object]) -> Mapping[str, object]:
        return {"contents": ["words"] if params["uri"] == "x://odd" else [{"uri": params["uri"], "text": "linked"}]}


@each_row(
    ("method", "text", "says"),
    [
        ("ui/open-link", "{", "JSON that cannot be read"),
        ("ui/open-link", "[]", "params must be an object"),
        ("ui/open-link", "{}", "missing required field `url`"),
        ("ui/initialize", '{"appInfo": 5}', "ui/initialize: "),
    ],
)
async def test_invalid_request_is_refused_with_its_fault(method: str, text: str, says: str) -> None:
    host = Program().host
    answer = await host.answer(method, text, is_request=True)
    assert answer is not None and isinstance(answer["error"], dict)
    assert answer["error"]["code"] == INVALID_PARAMS and says in answer["error"]["message"]
    assert bool(host.initialize_error) is (method == "ui/initialize")
    assert await host.answer(method, text, is_request=False) is None


@each_row("url", ["http://[", "file:///etc/passwd", "https:", "javascript:alert(1)"])
async def test_only_web_addresses_are_opened(url: str) -> None:
    host = Program().host
    assert await host.answer("ui/open-link", json.dumps({"url": url}), is_request=True) == {"result": {"isError": True}}
    assert await host.answer("ui/open-link", '{"url": "https://a.test/"}', is_request=True) == {"result": {}}


def resource(**fields: object) -> dict[str, object]:
    return {"type": "resource", "resource": {"uri": "x://a.bin", **fields}}


@each_row(
    ("item", "reason"),
    [
        (resource(blob="!"), "x://a.bin is not valid base64"),
        (resource(), "x://a.bin cannot be decoded"),
        ({"type": "resource", "resource": "words"}, "neither a resource nor a link"),
        ({"type": "resource_link", "uri": "x://odd"}, "it is not a resource"),
    ],
)
async def test_refused_file_of_a_view_drops_the_whole_request(item: Mapping[str, object], reason: str) -> None:
    program = Program()
    for contents, answer in (([resource(blob="eA=="), item], {"isError": True}), ([resource(text="x")], {})):
        asked = json.dumps({"contents": contents})
        assert await program.host.answer("ui/download-file", asked, is_request=True) == {"result": answer}
    assert [file.read() for file in program.files] == [b"x"]
    assert [request.answer for request in program.host.requests] == [{"isError": True}, {}]
    (warning,) = program.host.warnings
    assert reason in warning


async def test_flood_of_requests_keeps_the_last_of_each_kind() -> None:
    host = Program().host
    await host.answer("ui/open-link", '{"url": "https://a.test/"}', is_request=True)
    for width in range(1100):
        await host.answer("ui/notifications/size-changed", json.dumps({"width": width}), is_request=False)
    kept = [request.params.get("width") for request in host.requests]
    assert kept == [None, *range(100, 1100)]
    assert host.warnings == ("100 requests of the kind size are not remembered",)
