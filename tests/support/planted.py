"""The planted faults of the reference app and of a server with a view, and the check of `abp conformance` that finds
each."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from urllib.parse import quote

from tests.support.mcp_servers import target

PAGE, EMBEDDED, WEBSOCKET = "page", "embedded", "websocket"
BROWSER = (PAGE, EMBEDDED)
ALL = (PAGE, EMBEDDED, WEBSOCKET)


@dataclass(frozen=True)
class Planted:
    """``query`` switches the fault on; ``check`` finds it, over every one of ``kinds``. ``path`` is another page."""

    name: str
    check: str
    kinds: tuple[str, ...]
    query: str
    path: str = ""
    only: tuple[str, ...] = ("fault.*", "wire.*")

    @property
    def timeout(self) -> float:
        """Seconds that each call is given; large answers take some."""
        return 10.0 if "megabytes" in self.query else 1.0


def fault(name: str, check: str, kinds: tuple[str, ...], **params: object) -> Planted:
    """A capability that goes wrong as the app's ordinary behaviour, with these parameters in every call."""
    shown = f"{name} {json.dumps(params)}" if params else name
    query = f"faults={name}" + (f"&given={quote(json.dumps(params))}" if params else "")
    return Planted(shown, check, kinds, query)


def breaks(name: str, check: str, kinds: tuple[str, ...] = (PAGE,), only: tuple[str, ...] = ("file.list",)) -> Planted:
    """A rule that the page object breaks."""
    return Planted(f"breaks={name}", check, kinds, f"breaks={name}", only=only)


def page(query: str, check: str, kinds: tuple[str, ...] = (PAGE,), only: tuple[str, ...] = ("file.list",)) -> Planted:
    return Planted(query, check, kinds, query, only=only)


def path(where: str, check: str) -> Planted:
    return Planted(f"/embed{where}", check, (EMBEDDED,), "", where, ("file.list",))


def native(kind: str, check: str = "answers.native", kinds: tuple[str, ...] = BROWSER, **more: object) -> Planted:
    return fault("native_ui", check, kinds, do=[{"kind": kind, **more}])


PLANTED: tuple[Planted, ...] = (
    # content
    fault("wrong_size", "binary.size", ALL),
    fault("bad_size", "binary.size", ALL),
    fault("bad_size", "binary.size", ALL, value=1.5),
    fault("bad_base64", "binary.encoding", ALL),
    fault("noncanonical_base64", "binary.encoding", ALL),
    fault("no_padding", "binary.alphabet", ALL),
    fault("url_safe_base64", "binary.alphabet", ALL),
    fault("wrong_mime", "binary.type", ALL),
    fault("bad_name", "binary.filename", ALL),
    fault("partial", "binary.size", ALL),
    # downloads
    fault("short_download", "binary.size", ALL),
    fault("short_download", "binary.download", ALL, how="cut"),
    fault("long_download", "binary.size", ALL),
    fault("long_download", "binary.size", ALL, how="endless"),
    fault("cut_once", "binary.at_once", ALL),
    fault("gone", "binary.download", ALL),
    fault("gone", "binary.at_once", ALL, status=503, times=1),
    fault("expired", "binary.expiry", ALL),
    fault("expired", "binary.lifetime", ALL, ago=-600),
    fault("redirect_away", "binary.stays", ALL),
    # behaviour
    fault("never", "answers.timeout", ALL),
    fault("never", "cancel.running", (PAGE, WEBSOCKET)),
    fault("spin", "answers.timeout", BROWSER),
    fault("throws", "errors.clear", ALL),
    fault("rejects_string", "errors.clear", ALL),
    fault("navigate", "answers.alive", BROWSER),
    fault("navigate", "answers.alive", BROWSER, how="away"),
    # answers
    fault("deep", "answers.readable", ALL),
    fault("big_json", "answers.size", ALL, megabytes=11),
    fault("crash_half", "answers.data", ALL),
    fault("bad_answer", "answers.shape", (PAGE, WEBSOCKET, EMBEDDED)),
    fault("bad_answer", "answers.shape", ALL, value=[]),
    fault("status_only", "answers.real", ALL),
    # what the app does beside answering
    fault("alert", "answers.native", (PAGE,)),
    fault("alert", "answers.native", (PAGE,), kind="confirm"),
    native("popup", kinds=(PAGE,)),
    native("download"),
    native("download", how="navigate"),
    native("choose"),
    native("pick"),
    native("share"),
    native("notify"),
    native("copy", "answers.clipboard"),
    # frames
    fault("wire.cut", "wire.frames", (WEBSOCKET,)),
    fault("wire.silent", "answers.timeout", (WEBSOCKET,)),
    fault("wire.duplicate", "wire.frames", (WEBSOCKET,)),
    fault("wire.foreign", "wire.frames", (WEBSOCKET,)),
    fault("wire.late", "answers.timeout", (WEBSOCKET,)),
    fault("wire.unknown_type", "wire.frames", (WEBSOCKET,)),
    fault("wire.invalid_utf8", "wire.frames", (WEBSOCKET,)),
    fault("wire.bad_json", "wire.frames", (WEBSOCKET,), kind="junk"),
    fault("wire.bad_json", "wire.frames", (WEBSOCKET,), kind="deep"),
    fault("wire.deflate_bomb", "wire.frames", (WEBSOCKET,), megabytes=5),
    fault("wire.binary_frame", "wire.frames", (WEBSOCKET,)),
    fault("wire.close", "answers.alive", (WEBSOCKET,)),
    fault("wire.no_close", "wire.frames", (WEBSOCKET,)),
    fault("wire.untimed", "wire.timestamp", (WEBSOCKET,)),
    # the page as a whole
    page("late=500", "page.ready"),
    page("absent", "session.reachable", BROWSER),
    page("half", "session.reachable", BROWSER),
    page("throws", "session.reachable", BROWSER),
    page("initfails", "session.reachable", (PAGE,)),
    page("initfails", "session.initialize", (EMBEDDED,)),
    page("wrappedlist", "page.list"),
    page("emptylist", "session.list"),
    page("canceltype=string", "cancel.forms"),
    page("canceltype=object", "cancel.forms"),
    page("noinit", "session.reachable", (WEBSOCKET,)),
    page("auth=query", "session.reachable", (WEBSOCKET,)),
    page("subprotocol=abp", "session.reachable", (WEBSOCKET,)),
    path("/denied", "session.reachable"),
    path("/ancestors", "session.reachable"),
    path("/silent", "session.reachable"),
    path("/shouting", "wire.window"),
    page("manifest=none", "manifest.link", BROWSER),
    page("manifest=missing", "manifest.readable", BROWSER),
    page("manifest=broken", "manifest.readable", BROWSER),
    page("manifest=version", "manifest.fields", BROWSER),
    page("manifest=text", "manifest.type", BROWSER),
    page("manifest=app", "manifest.agrees", BROWSER),
    page("manifest=more", "manifest.agrees", BROWSER),
    # rules of the page object
    breaks("noversion", "page.members"),
    breaks("noapp", "page.members"),
    breaks("noshutdown", "page.members"),
    breaks("notlisted", "session.list"),
    breaks("notlisted", "page.list"),
    breaks("describe", "page.describe"),
    breaks("supports", "page.supports"),
    breaks("nosupports", "page.supports"),
    breaks("deprecated", "schema.alternatives"),
    breaks("deprecated,gone", "errors.deprecated"),
    breaks("delivery", "session.delivery", BROWSER, ("clipboard.*",)),
    breaks("cancelearly", "cancel.early"),
    breaks("throws", "page.call"),
    breaks("reload", "page.reload"),
    breaks("nosession", "session.initialize", BROWSER),
    breaks("version", "session.version", BROWSER),
    breaks("nofeatures", "session.features", BROWSER),
    breaks("hidden", "session.list"),
    breaks("unready", "session.early", BROWSER),
    breaks("twice", "session.twice", BROWSER),
    breaks("shutdownonce", "session.shutdown"),
    breaks("forgetful", "session.again", BROWSER),
    breaks("moody", "session.reopened", BROWSER),
    breaks("badschema", "schema.valid"),
    breaks("badoutputschema", "schema.valid"),
    page("manifest=none&breaks=undescribed", "schema.described"),
    breaks("refuses", "schema.params", BROWSER),
    breaks("result", "schema.result", BROWSER),
    breaks("errortext", "errors.shape", BROWSER),
    breaks("errorcode", "errors.shape", BROWSER),
    breaks("unknown", "errors.unknown", BROWSER),
    breaks("missing", "errors.missing", BROWSER, ("data.json",)),
    breaks("type", "errors.type", BROWSER, ("data.json",)),
    breaks("noencoding", "binary.fields", BROWSER),
    breaks("nomime", "binary.fields", BROWSER),
    breaks("nosize", "binary.size_given", BROWSER),
    breaks("nourlsize", "binary.reference_size", BROWSER),
    breaks("undeclared", "schema.content", BROWSER),
    breaks("detached", "binary.taken"),
    breaks("progress", "answers.progress", BROWSER, ("job.run",)),
    breaks("cancelsall", "cancel.unknown"),
    breaks("cancelsnone", "cancel.running", BROWSER, ("job.wait",)),
    breaks("canceltext", "cancel.forms"),
    breaks("cancelonce", "cancel.again", (PAGE,), ("job.wait",)),
)

#: What the protocol allows although a client may find it hard: nothing is found.
ALLOWED: tuple[Planted, ...] = (
    fault("slow", "", ALL, ms=300),
    fault("big_json", "", ALL),
    # each does two things that an app may do
    page(f"{native('print').query}&ownevents=assign", "", BROWSER, ("fault.*", "job.run")),
    page("isolated&ownevents=call", "", BROWSER, ("job.run",)),
    fault("wire.slow", "", (WEBSOCKET,), ms=5, bytes=16384),
    fault("wire.huge", "", (WEBSOCKET,)),
    page("capabilities=300", "", (PAGE, WEBSOCKET)),
    path("/strict", ""),
)


@dataclass(frozen=True)
class PlantedView:
    """A fault of `mcp_servers/faulty_views.py`, and the ``check`` that finds it. ``opens`` is true if the view has to
    be opened for that; the others are seen in what the server lists."""

    name: str
    check: str
    opens: bool = False

    @property
    def target(self) -> str:
        """The server with this fault."""
        return faulty_target(self.name)


def faulty_target(*views: str) -> str:
    """The server with a view for each, with its faults."""
    return target("faulty_views", *map(shlex.quote, views))


def listed(check: str, *names: str) -> tuple[PlantedView, ...]:
    return tuple(PlantedView(name, check) for name in names)


def opened(check: str, *names: str) -> tuple[PlantedView, ...]:
    return tuple(PlantedView(name, check, opens=True) for name in names)


PLANTED_VIEWS: tuple[PlantedView, ...] = (
    *listed("APP-001", "the tool names https://", "a view at file://"),
    *listed("APP-002", "the listed type is text/html", "the type is text/html", "a space in the type"),
    *listed("APP-003", "neither text nor blob"),
    *listed("APP-004", "JSON instead of HTML", "an empty text", "a blob that is not base64"),
    *listed("APP-005", "no such resource", "no contents"),
    *listed("APP-006", "the older key alone", "the key of ChatGPT alone"),
    *listed("APP-007", "metadata of the tool is a text", "resourceUri is a number", "visibility is a text"),
    *listed("APP-007", "a policy at the tool", "resourceURI", "resource_uri beside visibility", "ui/resourceuri"),
    *listed("APP-007", "the address at another key", "visibilty"),
    *listed("APP-008", "the policy is a list", "domains are a text", "a permission is true"),
    *listed("APP-008", "prefersBorder is a text", "domain is a number", "resource_domains", "clipboard-write"),
    *listed("APP-009", "any domain", "a domain without a scheme", "a domain with a path"),
    *opened("APP-010", "no content", "an empty text alone"),
    *listed("APP-011", "visible to users"),
    *opened("APP-100", "no ui/initialize", "ping instead of ui/initialize", "a script does not parse"),
    *opened("APP-101", "no appCapabilities", "appCapabilities are a list"),
    *opened("APP-102", "no initialized"),
    *opened("APP-103", "an unknown method", "a request of an unknown method", "no JSON-RPC", "no version of JSON-RPC"),
    *opened("APP-104", "no size"),
    *opened("APP-105", "tools/list refused", "tools/list answers an object", "tools/list is not answered"),
    *opened("APP-106", "fullscreen unasked"),
    *opened("view.shown", "nothing drawn", "the type is text/html"),
    *opened("view.policy", "a foreign picture", "a foreign library"),
    *opened("view.scripts", "a script fails"),
)

#: What a server may do: nothing is found.
ALLOWED_VIEWS: tuple[PlantedView, ...] = (
    *opened("", "as a blob", "the tool fails"),
    *listed("", "not listed", "both keys", "good metadata"),
)
