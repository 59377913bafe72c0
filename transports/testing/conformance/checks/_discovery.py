"""Checks of the manifest (docs/protocol.md 7)."""

from __future__ import annotations

from collections.abc import Iterator

from ....protocol._declarations import Manifest
from ....protocol.messages import PROTOCOL_VERSION
from ....routing.http._headers import is_json
from .._evidence import Evidence, NotApplicable, Rules, as_mapping

RULES = Rules()


def _manifest(app: Evidence) -> Manifest:
    if app.discovery is None:
        raise NotApplicable("an app without a page of its own has no manifest")
    if app.discovery.manifest is None:
        raise NotApplicable("there is no readable manifest")
    return app.discovery.manifest


@RULES(
    "manifest.link",
    "MUST",
    "The page names its manifest in its head",
    source="docs/protocol.md 7.1",
    fix='add <link rel="abp-manifest" href="/abp-manifest.json"> to the first 50 KB of the page',
)
def _link(app: Evidence) -> Iterator[str]:
    if app.discovery is None:
        raise NotApplicable("an app without a page of its own has no manifest")
    if app.discovery.manifest_url is None:
        yield app.discovery.reason.message if app.discovery.reason else "no link"


@RULES(
    "manifest.readable",
    "MUST",
    "A linked manifest can be fetched and read",
    source="docs/protocol.md 7.2",
    fix="serve JSON of at most 1 MB there: {abp, app: {id, name, version}, capabilities: [{name}]}",
)
def _readable(app: Evidence) -> Iterator[str]:
    if app.discovery is None or app.discovery.manifest_url is None:
        raise NotApplicable("no manifest is linked")
    if app.discovery.reason is not None:
        yield app.discovery.reason.message
    if app.discovery.manifest and app.discovery.manifest.abp == "":
        yield from app.discovery.warnings


@RULES(
    "manifest.fields",
    "MUST",
    "The manifest declares its protocol version, the identity of the app, and its capabilities",
    source="docs/protocol.md 7.2, 1.4",
    fix="give abp, app.id, app.name and app.version as text, and capabilities as an array",
)
def _fields(app: Evidence) -> Iterator[str]:
    manifest = _manifest(app)
    declared = {"abp": manifest.abp, "app.id": manifest.app.id, "app.name": manifest.app.name}
    declared["app.version"] = manifest.app.version
    yield from (f"{name} is missing" for name, value in declared.items() if not value)
    if "capabilities" not in manifest.model_fields_set:
        yield "capabilities is missing"
    if manifest.abp and manifest.abp.partition(".")[0] != PROTOCOL_VERSION.partition(".")[0]:
        yield f"abp is {manifest.abp!r}, another major version than {PROTOCOL_VERSION}"


@RULES(
    "manifest.type",
    "SHOULD",
    "The manifest is served as application/json",
    source="docs/protocol.md 7.2",
    fix="send Content-Type: application/json with it",
)
def _type(app: Evidence) -> Iterator[str]:
    _manifest(app)
    assert app.discovery is not None
    kind = app.discovery.manifest_type
    if not is_json(kind):
        yield f"it is served as {kind[:80]}" if kind else "it is served without a Content-Type"


@RULES(
    "manifest.agrees",
    "SHOULD",
    "The manifest agrees with the running app",
    source="docs/protocol.md 7.5",
    fix="generate both from the same definitions",
)
def _agrees(app: Evidence) -> Iterator[str]:
    manifest = _manifest(app)
    if app.open_error is not None:
        raise NotApplicable("the app could not be initialized")
    running = as_mapping(app.session_info.get("app"))
    for name in ("id", "name", "version"):
        declared = getattr(manifest.app, name)
        if declared and running.get(name) not in (None, declared):
            yield f"app.{name} is {declared!r} in the manifest and {running.get(name)!r} in the app"
    offered = {trial.name for trial in app.trials}
    for capability in manifest.capabilities:
        if capability.name not in offered:
            yield f"{capability.name} is in the manifest only"
