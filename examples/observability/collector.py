"""A collector of OpenTelemetry that prints: spans as trees, and the names of metrics.

python examples/observability/collector.py 4318
OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 abp call URL export.pdf -p html=Hi
"""

from __future__ import annotations

import gzip
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

MAX_BODY = 16 << 20


@dataclass
class Span:
    """One span: its times are nanoseconds since 1970, its ids hexadecimal."""

    service: str
    trace: str
    id: str
    parent: str
    name: str
    start: int
    end: int
    attributes: dict[str, object] = field(default_factory=dict)

    @property
    def milliseconds(self) -> float:
        return (self.end - self.start) / 1e6


def spans_of(body: bytes) -> Iterator[Span]:
    """The spans of a request to /v1/traces (OTLP over HTTP, protobuf)."""
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        service = str(values(resource.resource.attributes).get("service.name", ""))
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield Span(
                    service,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    span.name,
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                    values(span.attributes),
                )


def values(attributes: Iterable[Any]) -> dict[str, object]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value") or "string_value") for one in attributes}


def metrics_of(body: bytes) -> Iterator[str]:
    """The names of the metrics in a request to /v1/metrics."""
    for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
        for scope in resource.scope_metrics:
            yield from (metric.name for metric in scope.metrics)


@contextmanager
def collecting(
    on_spans: Callable[[list[Span]], object], on_metrics: Callable[[list[str]], object], port: int = 0
) -> Iterator[str]:
    """Receive on this machine while the block lasts. Gives the address for OTEL_EXPORTER_OTLP_ENDPOINT."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def handle(self) -> None:
            with suppress(ConnectionError):  # the client closed the connection early
                super().handle()

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            if length > MAX_BODY:
                self.send_error(413)
                return
            body = self.rfile.read(length)
            if len(body) < length:
                return  # the client closed the connection early
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            if self.path == "/v1/traces":
                on_spans(list(spans_of(body)))
            elif self.path == "/v1/metrics":
                on_metrics(list(metrics_of(body)))
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def rows(spans: Iterable[Span]) -> Iterator[tuple[int, Span]]:
    """Each span with its depth, a child below its parent, in the order of their starts."""
    ordered = sorted(spans, key=lambda span: span.start)
    known = {span.id for span in ordered}

    def below(parent: str | None, depth: int) -> Iterator[tuple[int, Span]]:
        for span in ordered:
            if (span.parent if span.parent in known else None) == parent:
                yield depth, span
                yield from below(span.id, depth + 1)

    return below(None, 0)


def text(spans: Iterable[Span]) -> str:
    """A trace as lines."""
    return "\n".join(
        f"{span.milliseconds:9.1f} ms  {span.service:8}  {'  ' * depth}{span.name}  {note(span)}".rstrip()
        for depth, span in rows(spans)
    )


def note(span: Span) -> str:
    """What a picture says beside a span."""
    shown = ("abp.transport", "abp.rung", "abp.artifact.size", "http.response.status_code", "error.type")
    return " ".join(f"{name.removeprefix('abp.')}={span.attributes[name]}" for name in shown if name in span.attributes)


STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1d2327 } .dim { fill: #67707a; font-size: 12px } .page { fill: #ffffff }
.line { stroke: #e3e6e9 } .s0 { fill: #7b61c9 } .s1 { fill: #0f7a70 }
@media (prefers-color-scheme: dark) { text { fill: #e8eaed } .dim { fill: #9aa3ad } .page { fill: #16191d }
.line { stroke: #2b3036 } .s0 { fill: #a48ff0 } .s1 { fill: #3fb9ac } }
"""
ROW, LEFT, WIDTH, RIGHT = 26, 330, 560, 190


def svg(spans: Iterable[Span], title: str) -> str:
    """A trace as a picture: a row for each span, a bar for its time, a colour for each service."""
    lines = list(rows(spans))
    start, end = min(span.start for _, span in lines), max(span.end for _, span in lines)
    services = list(dict.fromkeys(span.service for _, span in lines))
    scale, height = WIDTH / max(end - start, 1), ROW * (len(lines) + 3)
    total = LEFT + WIDTH + RIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total} {height}" width="{total}" height="{height}" '
        f'role="img" aria-label="{escape(title)}"><style>{STYLE}</style>',
        f'<rect class="page" width="{total}" height="{height}"/><text x="16" y="28">{escape(title)}</text>',
    ]
    for number, service in enumerate(services):
        left = LEFT + 120 * number
        parts.append(f'<rect class="s{number % 2}" x="{left}" y="17" width="14" height="14" rx="3"/>')
        parts.append(f'<text x="{left + 20}" y="28">{escape(service)}</text>')
    for tick in range(5):
        at = LEFT + WIDTH * tick / 4
        parts.append(f'<line class="line" x1="{at}" x2="{at}" y1="{2 * ROW}" y2="{height - ROW / 2}"/>')
        parts.append(f'<text class="dim" x="{at + 3}" y="{2 * ROW - 6}">{(end - start) * tick / 4e6:.0f} ms</text>')
    for number, (depth, span) in enumerate(lines):
        y = ROW * (number + 2.4)
        x, width = LEFT + (span.start - start) * scale, max((span.end - span.start) * scale, 2)
        colour = services.index(span.service) % 2
        parts.append(f'<text x="{16 + 14 * depth}" y="{y + 12}">{escape(span.name)}</text>')
        parts.append(f'<rect class="s{colour}" x="{x:.1f}" y="{y}" width="{width:.1f}" height="15" rx="3"/>')
        beside = f"{span.milliseconds:.1f} ms  {note(span)}".rstrip()
        parts.append(f'<text class="dim" x="{x + width + 6:.1f}" y="{y + 12}">{escape(beside)}</text>')
    return "\n".join([*parts, "</svg>\n"])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with collecting(
        lambda spans: print(text(spans), flush=True),
        lambda names: print("metrics:", *names, flush=True),
        int(sys.argv[1]),
    ) as endpoint:
        print(f"OTEL_EXPORTER_OTLP_ENDPOINT={endpoint}", flush=True)
        threading.Event().wait()
