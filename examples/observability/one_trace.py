"""One trace, from an agent to the store: an MCP client calls an app through `abp mcp`, and both send their spans here.

python examples/observability/one_trace.py http://127.0.0.1:8000/ trace.svg
"""

import asyncio
import os
import sys
from pathlib import Path

from collector import Span, collecting, svg, text
from mcp import Client, StdioServerParameters
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor


async def agent(url: str, endpoint: str) -> str:
    """Call the app, and return the id of the trace. The MCP SDK makes the client's spans and sends `traceparent`."""
    env = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_SERVICE_NAME": "abp mcp"}
    command = StdioServerParameters(command=sys.executable, args=["-m", "transports.surfaces.cli", "mcp"], env=env)
    async with Client(command) as client:
        connected = await client.call_tool("abp_connect", {"url": url})
        assert not connected.is_error, connected
        with trace.get_tracer("agent").start_as_current_span("agent: two files") as span:
            for arguments in ({"megabytes": 2}, {"megabytes": 2, "as": "url"}):
                answer = await client.call_tool("abp_file_generate", arguments)
                assert not answer.is_error, answer
    return f"{span.get_span_context().trace_id:032x}"


def main(url: str, picture: str) -> None:
    received: list[Span] = []
    metrics: set[str] = set()
    with collecting(received.extend, metrics.update) as endpoint:
        provider = TracerProvider(resource=Resource.create({"service.name": "agent"}))
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{endpoint}/v1/traces")))
        trace.set_tracer_provider(provider)
        trace_id = asyncio.run(agent(url, endpoint))
        provider.shutdown()
    spans = [span for span in received if span.trace == trace_id]
    Path(picture).write_text(svg(spans, "One trace, from the agent to the store"), encoding="utf-8")
    print(text(spans))
    print("metrics:", *sorted(metrics))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
