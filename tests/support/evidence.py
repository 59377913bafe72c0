"""Pages that leave evidence of a call that fails, and the files of that evidence."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator

from aiohttp import web

from transports import ArtifactRef


def failing_app(capability: str, body: str, before: str, work: str) -> str:
    """HTML of an app with one capability, which does ``work`` and fails. ``before`` is script that it may use."""
    return f"""<!doctype html><title>App</title><body><h1>App</h1>
{body}<script>
{before}
const call = async (capability, params) => {{
  {work}
  return {{ success: false, error: {{ code: "DENIED", message: "not today" }} }};
}};
window.abp = {{
  initialized: true, version: "0.1", app: {{ id: "test.page", name: "Test page", version: "1" }},
  initialize: async () => ({{ sessionId: "s", protocolVersion: "0.1", app: window.abp.app,
    capabilities: [{{ name: "{capability}" }}], features: {{}} }}),
  shutdown: async () => {{}}, call, listCapabilities: async () => [{{ name: "{capability}", available: true }}],
}};
</script>"""


async def echo(request: web.Request) -> web.Response:
    return web.Response(body=await request.read(), content_type="text/plain")


def files_of(ref: ArtifactRef) -> Iterator[tuple[str, bytes]]:
    """All that a file holds, by name; of a zip each file in it."""
    assert ref.path is not None
    if ref.mime_type != "application/zip":
        yield ref.filename, ref.path.read_bytes()
        return
    with zipfile.ZipFile(ref.path) as archive:
        for name in archive.namelist():
            yield name, archive.read(name)
