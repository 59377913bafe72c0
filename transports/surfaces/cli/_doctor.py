"""``abp doctor`` and ``abp conformance``: checks of the installation, and of an app against the protocol."""

from __future__ import annotations

import asyncio
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

import typer

from ...artifacts._opening import open_store
from ...artifacts._ref import Scope
from ...errors import ABPError, BinaryError, StoreError
from ...playwright._browser import Browser
from ...playwright._find import find_browser, find_ffmpeg, no_ffmpeg
from ...protocol._plain_text import plain_text, redact_url
from ...protocol._strict_json import encode_json
from ...session._settings import Settings
from ._options import (
    AdapterFile,
    BrowserName,
    Headed,
    Headers,
    Json,
    StorageState,
    Target,
    Token,
    TransportName,
    headers_of,
    require_writable_file,
    seconds_between,
    spread_groups,
)
from ._output import ProgressBar, installed_version, print_json, print_note, print_text, spellable, stdout_is_terminal
from ._running import asynchronous

if TYPE_CHECKING:
    from ...testing.conformance._evidence import Report


@asynchronous
async def doctor(
    install: Annotated[bool, typer.Option("--install", help="Install a browser if there is none.")] = False,
    as_json: Json = False,
) -> int:
    """Check the installation, from versions to a self-test.

    Include the output in a report of a problem; it holds no secrets. Exit status 1 if anything is missing."""
    facts: Facts = {}
    problems: list[ABPError] = []
    if install and find_browser() is None:
        await _install_browser()

    for check in CHECKS:
        try:
            await check(facts)
        except ABPError as error:
            problems.append(error)
        except (OSError, TimeoutError) as error:
            problems.append(ABPError(f"the system refused: {error}"))

    if as_json:
        print_json(_report_document(facts, problems))
    else:
        _print_facts(facts)
    for problem in problems:
        print_note(f"{problem.message} [{problem.code}]", always=True)
    return 1 if problems else 0


def _report_document(facts: Facts, problems: Sequence[ABPError]) -> dict[str, object]:
    document: dict[str, object] = {"success": not problems}
    for name, fact in facts.items():
        document[name.replace(" ", "_").replace("-", "_")] = fact.value
    document["problems"] = [{"code": problem.code, "message": problem.message} for problem in problems]
    if problems:
        document["error"] = problems[0].as_dict()
    return document


def _print_facts(facts: Facts) -> None:
    for name, fact in facts.items():
        label = name
        for line in fact.text.splitlines() or [""]:
            print_text(f"{label:<16} {line}")
            label = ""


async def _install_browser() -> None:
    """Install Playwright's own browser; if that fails, the Debian package."""
    playwright = [sys.executable, "-m", "playwright", "install", "chromium"]
    installers = []
    if await _can_download(playwright):
        installers.append([playwright])
    if shutil.which("apt-get") and os.geteuid() == 0:
        update = ["apt-get", "update", "-qq"]
        package = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"]
        installers.append([update, package])

    for commands in installers:
        # All commands run, so the package is installed even if the update before it failed.
        succeeded = [await _run_installer(command) for command in commands]
        if all(succeeded):
            return
    print_note("no browser could be installed; see the commands above", always=True)


async def _can_download(playwright: list[str]) -> bool:
    """Whether the server of Playwright's browsers answers; if not, the reason is printed. Playwright itself would try
    five times, for half a minute each."""
    import aiohttp

    dry_run = [*playwright, "--dry-run"]
    refusal = None
    try:
        listing = await asyncio.to_thread(
            subprocess.run, dry_run, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
        )
        # The dry run lists what would be downloaded, and from where.
        address = re.search(r"https?://\S+", listing.stdout)
        if address is None:
            return True
        async with (
            aiohttp.ClientSession(trust_env=True, timeout=aiohttp.ClientTimeout(total=10)) as client,
            # Playwright itself checks the certificate, perhaps with other authorities.
            client.head(address[0], allow_redirects=True, ssl=False) as response,
        ):
            if response.status >= 400:
                refusal = f"status {response.status}"
    except (aiohttp.ClientError, TimeoutError, OSError, subprocess.SubprocessError) as error:
        refusal = str(error) or "no answer in 10 s"

    if refusal is None:
        return True
    print_note(f"Playwright's browsers cannot be downloaded here: {refusal}", always=True)
    return False


async def _run_installer(command: list[str]) -> bool:
    print_note(" ".join(command))
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # The installer's output goes to stderr, since stdout is for the report.
    stderr = 2
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=stderr, env=environment
    )
    try:
        return await process.wait() == 0
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


class Fact(NamedTuple):
    """Fact of the report, as its ``text`` and as the ``value`` in the document of ``--json``."""

    text: str
    value: object


#: Facts by name, in the order of the report.
Facts: TypeAlias = dict[str, Fact]

#: Distribution of each extra; the extra counts as installed if the distribution is.
_EXTRAS = {
    "cloud": "obstore",
    "compression": "brotli",
    "data": "fsspec",
    "images": "pillow",
    "mcp": "mcp",
    "otel": "opentelemetry-sdk",
    "parquet": "pyarrow",
    "pdf": "pypdfium2",
    "postgres": "psycopg",
    "ray": "ray",
    "test": "pytest-playwright",
}
#: Variables whose values are printed. Of other variables only the names are printed, since the values may be secrets.
_PRINTED_VARIABLES = (
    *("ABP_OUTPUT_DIR", "ABP_HEADLESS", "ABP_BROWSER", "ABP_BROWSER_TIMEOUT", "ABP_CALL_TIMEOUT", "ABP_LOG_LEVEL"),
    *("ABP_DOWNLOAD_TIMEOUT", "ABP_MAX_MESSAGE_BYTES", "ABP_MAX_ARTIFACT_BYTES", "ABP_ALLOW_PRIVATE_ADDRESSES"),
    *("ABP_MAX_SESSION_BYTES", "ABP_MIN_FREE_DISK"),
)
#: Size of the self-test's files in bytes.
_SELF_TEST_BYTES = 1 << 20
#: Timeout in seconds of each check that waits.
_TIMEOUT = 30.0


async def _check_versions(facts: Facts) -> None:
    for distribution in ("abp-transports", "playwright"):
        version = installed_version(distribution) or "unknown"
        facts[distribution] = Fact(version, version)
    python = {"version": platform.python_version(), "platform": platform.platform()}
    facts["python"] = Fact(" on ".join(python.values()), python)


async def _check_optional(facts: Facts) -> None:
    """Note which optional parts are installed: the program that makes videos, extras and plug-ins."""
    ffmpeg, is_installed = find_ffmpeg()
    facts["video"] = Fact(f"yes, by {ffmpeg}" if is_installed else no_ffmpeg(), is_installed)

    words = []
    extras = {}
    for name, distribution in _EXTRAS.items():
        version = installed_version(distribution)
        state = f"{distribution} {version}" if version else "not installed"
        words.append(f"{name} ({state})")
        extras[name] = {"distribution": distribution, "version": version}
    facts["extras"] = Fact("\n".join(words), extras)

    plugins = _find_plugins()
    if plugins:
        facts["plug-ins"] = Fact(", ".join(map(_plugin_text, plugins)), plugins)


def _plugin_text(plugin: Mapping[str, str | None]) -> str:
    source = " ".join(filter(None, (plugin["distribution"] or "unknown", plugin["version"])))
    text = f"{plugin['name']} ({source})"
    if plugin["group"] != "abp.transports":
        text += f" in {plugin['group']}"
    return text


def _find_plugins() -> list[dict[str, str | None]]:
    installed = entry_points()
    plugins: list[dict[str, str | None]] = []
    for group in sorted(installed.groups):
        if not group.startswith("abp."):
            continue
        for point in sorted(installed.select(group=group), key=attrgetter("name")):
            distribution = point.dist
            assert distribution is not None, "points that are found have one"
            plugins.append(
                {
                    "group": group,
                    "name": point.name,
                    "distribution": distribution.name,
                    "version": distribution.version,
                }
            )
    return plugins


async def _check_settings(facts: Facts) -> None:
    words = []
    values: dict[str, str | None] = {}
    for name, value in sorted(os.environ.items()):
        if not name.upper().startswith("ABP_") or not value:
            continue
        if name in _PRINTED_VARIABLES:
            words.append(f"{name}={value}")
            values[name] = value
        else:
            words.append(f"{name} (set)")
            values[name] = None
    facts["settings"] = Fact(", ".join(words) or "all at their defaults", values)


async def _check_store(facts: Facts) -> None:
    settings = Settings.load()
    store = open_store(settings.store or settings.output_dir)
    url = redact_url(store.url) or "unknown"
    # This fact stays in the report if a step below fails.
    facts["store"] = Fact(url, {"url": url, "works": False})

    content = os.urandom(64 * 1024)
    scope = Scope(session=f"doctor-{os.getpid()}")
    async with store, asyncio.timeout(_TIMEOUT):
        ref = await store.scoped(scope).put_bytes(content, filename="probe.bin")
        if store.url == "none:":
            facts["store"] = Fact(f"{url} (keeps nothing)", {"url": url, "works": True, "keeps": False})
            return
        try:
            stored_content = b"".join([chunk async for chunk in store.open(ref.id)])
            if stored_content != content:
                raise StoreError(f"{url} did not return the stored bytes; use another store")
        finally:
            await store.delete(ref.id)
    facts["store"] = Fact(
        f"{url} (can be written, read and deleted)", {"url": url, "works": True, "keeps": store.url != "memory:"}
    )


async def _check_browser(facts: Facts) -> None:
    is_root = sys.platform == "linux" and os.geteuid() == 0
    facts["sandbox"] = Fact("off: Chromium refuses its sandbox to root" if is_root else "on", not is_root)
    choice = find_browser()
    if choice:
        facts["browser"] = Fact(f"{choice.path} ({choice.reason})", {"path": str(choice.path), "reason": choice.reason})
    async with Browser() as browser:
        facts["browser version"] = Fact(browser.version, browser.version)
        await _self_test(browser, facts)
        facts["self-test"] = Fact(
            f"ok: {_SELF_TEST_BYTES:,} bytes to a page and back, the same", {"ok": True, "bytes": _SELF_TEST_BYTES}
        )


async def _self_test(browser: Browser, facts: Facts) -> None:
    """Send a file to the reference app in a page, take another one from it, and compare their hashes."""
    from webapp_fixture import digest, serve

    from ...playwright._transport import PlaywrightTransport  # late: the help need not wait for Playwright
    from ...session._connect import connect

    content = os.urandom(_SELF_TEST_BYTES)
    async with serve(interface=False) as served:
        transport = PlaywrightTransport(served.url, browser=browser)
        async with connect(served.url, transport=transport, store="memory:") as session:
            digest_result = await session.call("file.digest", {"file": content}, timeout=_TIMEOUT)
            generated_file = await session.call("file.generate", {"bytes": _SELF_TEST_BYTES}, timeout=_TIMEOUT)
            page = transport.page
            has_webmcp = page is not None and bool(await page.evaluate("'modelContext' in document"))
            facts["webmcp"] = _webmcp_fact(has_webmcp)

    received_file: Any = digest_result.data
    is_same_there = received_file["sha256"] == hashlib.sha256(content).hexdigest()
    is_same_here = generated_file.artifacts["file"].sha256 == digest(_SELF_TEST_BYTES)
    if not (is_same_there and is_same_here):
        raise BinaryError("a file came to or from the page with other bytes; please report it, with this whole output")


def _webmcp_fact(has_webmcp: bool) -> Fact:
    if has_webmcp:
        return Fact("on: pages with tools can be driven (docs/webmcp.md)", has_webmcp)
    return Fact(
        "off: this browser has none; use Chromium 149 or newer. A browser that you start yourself needs "
        "--enable-features=WebMCP. Pages with a polyfill work in any browser",
        has_webmcp,
    )


#: Checks in the order in which they run.
CHECKS: tuple[Callable[[Facts], Awaitable[None]], ...] = (
    _check_versions,
    _check_settings,
    _check_store,
    _check_browser,
    _check_optional,
)

_Patterns = list[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConformanceOptions:
    transport: TransportName = "auto"
    only: Annotated[
        _Patterns, typer.Option("--only", metavar="PATTERN", help="Call these capabilities only, such as 'export.*'.")
    ] = None
    skip: Annotated[_Patterns, typer.Option("--skip", metavar="PATTERN", help="Do not call these capabilities.")] = None
    no_calls: Annotated[bool, typer.Option("--no-calls", help="Call no capability at all.")] = False
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            metavar="TIME",
            parser=seconds_between(0.1, 3600),
            help="Time that each call is given: seconds, or 5s, 2m.",
        ),
    ] = 5.0
    browser: BrowserName = None
    headed: Headed = False
    storage_state: StorageState = None
    adapter: AdapterFile = None
    token: Token = None
    header: Headers = None
    as_json: Json = False
    junit: Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Also write JUnit XML.")] = None
    badge: Annotated[Path | None, typer.Option("--badge", metavar="FILE", help="Also write the JSON of a badge.")] = (
        None
    )


@spread_groups
@asynchronous
async def conformance(target: Target, *, options: ConformanceOptions) -> int:
    """Check an app against every MUST and SHOULD of the protocol. Exit status 0 if it conforms, 1 if not, or if it does
    not answer.

    Capabilities are really called, with small parameters made from their inputSchema (or its `examples`): exclude with
    --skip those that must not run.
    """
    from ...testing.conformance import check_app
    from ...testing.conformance._evidence import Plan

    for file in (options.junit, options.badge):
        require_writable_file(file)
    with ProgressBar("checking the app") as bar:
        plan = Plan(
            timeout=options.timeout,
            only=options.only or (),
            skip=options.skip or (),
            calls=not options.no_calls,
            on_step=lambda step: bar.set_label(f"looking at {step}"),
        )
        report = await check_app(
            target,
            plan,
            transport=options.transport,
            browser=options.browser,
            storage_state=options.storage_state,
            adapter=options.adapter,
            headless=False if options.headed else None,
            headers=headers_of(options.token, options.header or ()),
        )

    if options.junit is not None:
        options.junit.write_bytes(report.junit())
    if options.badge is not None:
        options.badge.write_bytes(encode_json(report.badge()) + b"\n")
    if options.as_json:
        print_json(report.as_dict())
    else:
        _print_report(report)
    return 0 if report.conformant else 1


def _print_report(report: Report) -> None:
    if not stdout_is_terminal():
        print_text("\n".join(text for text, _ in report.lines()))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(soft_wrap=True)
    styles = {None: "", "passed": "green", "failed": "bold red", "warning": "yellow", "not-applicable": "dim"}
    for text, status in report.lines():
        console.print(Text(spellable(plain_text(text)), style=styles[status]))
