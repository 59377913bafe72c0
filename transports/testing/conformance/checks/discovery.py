"""The manifest (PROTOCOL "Discovery")."""

from __future__ import annotations

from collections.abc import Iterator

from ....protocol.declarations import Manifest
from ....protocol.messages import PROTOCOL_VERSION
from ..evidence import Evidence
from ..rules import NotApplicable, Rules

RULES = Rules()
_SOURCE = "PROTOCOL Discovery"


def _manifest(app: Evidence) -> Manifest:
    if app.discovery is None:
        raise NotApplicable(f"an app reached as {app.kind} has no manifest")
    if app.discovery.manifest is None:
        raise NotApplicable("there is no manifest that can be read")
    return app.discovery.manifest


@RULES(
    "manifest.link",
    "SHOULD",
    "The page names its manifest in its head",
    source=_SOURCE,
    fix='add <link rel="abp-manifest" href="/abp-manifest.json"> to the first 50 KB of the page',
)
def link(app: Evidence) -> Iterator[str]:
    if app.discovery is None:
        raise NotApplicable(f"an app reached as {app.kind} has no manifest")
    if app.discovery.manifest_url is None:
        yield app.discovery.reason.message if app.discovery.reason else "no link"


@RULES(
    "manifest.readable",
    "MUST",
    "A manifest that is named can be fetched and read",
    source=_SOURCE,
    fix="serve JSON of at most 1 MB there: {abp, app: {id, name, version}, capabilities: [{name}]}",
)
def readable(app: Evidence) -> Iterator[str]:
    if app.discovery is None or app.discovery.manifest_url is None:
        raise NotApplicable("no manifest is named")
    if app.discovery.reason is not None:
        yield app.discovery.reason.message
    yield from app.discovery.warnings if app.discovery.manifest and app.discovery.manifest.abp == "" else ()


@RULES(
    "manifest.fields",
    "MUST",
    "The manifest says its protocol version, and who the app is",
    source=_SOURCE,
    fix="give abp, app.id, app.name and app.version as text",
)
def fields(app: Evidence) -> Iterator[str]:
    manifest = _manifest(app)
    said = {"abp": manifest.abp, "app.id": manifest.app.id, "app.name": manifest.app.name}
    said["app.version"] = manifest.app.version
    yield from (f"{name} is missing" for name, value in said.items() if not value)
    if manifest.abp and manifest.abp.partition(".")[0] != PROTOCOL_VERSION.partition(".")[0]:
        yield f"abp is {manifest.abp!r}, another major version than {PROTOCOL_VERSION}"


@RULES(
    "manifest.agrees",
    "SHOULD",
    "What the manifest says is what the running app says",
    source=_SOURCE + ": the manifest informs, initialize counts",
    fix="make both from the same definitions",
)
def agrees(app: Evidence) -> Iterator[str]:
    manifest = _manifest(app)
    if app.refused is not None:
        raise NotApplicable("the app did not say anything itself")
    said = app.greeted.get("app")
    running = said if isinstance(said, dict) else {}
    for name in ("id", "name", "version"):
        declared = getattr(manifest.app, name)
        if declared and running.get(name) not in (None, declared):
            yield f"app.{name} is {declared!r} in the manifest and {running.get(name)!r} in the app"
    offered = {trial.name for trial in app.trials}
    yield from (f"{one.name} is in the manifest only" for one in manifest.capabilities if one.name not in offered)
