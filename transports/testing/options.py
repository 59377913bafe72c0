"""The options ``--abp-…`` of the pytest plugin, and the ini keys of the same names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ..protocol.urls import is_page

__all__ = [
    "add_options",
    "browser_options",
    "check_options",
    "evidence_option",
    "number_option",
    "output_folder",
    "starts_browser",
    "traces_here",
]

#: Options that take a number and are ini keys too: name, unit, help.
_NUMBERS = (
    ("timeout", "SECONDS", "Seconds for connecting, and for each call that gives none, of abp_app and abp_app_async."),
    ("slowmo", "MS", "Slow Playwright's steps in the plugin's browsers down by so many milliseconds, to watch them."),
    ("keep_runs", "N", "Runs whose reports of failed tests are kept, this one among them (default: 1)."),
)
_EVIDENCE = "Keep more of each call of abp_app and abp_app_async: trace=on-failure,video,har,console,screenshot."
_HEADED = "Show the browsers that abp_app and abp_app_async start."


def add_options(parser: pytest.Parser) -> None:
    """Add the options ``--abp-…`` and their ini keys."""
    group = parser.getgroup("abp", "apps that speak ABP (abp-transports)")
    group.addoption("--abp-target", metavar="URL", help="The app that abp_app drives where a test names none.")
    group.addoption(
        "--abp-transport",
        metavar="NAME",
        action="append",
        default=[],
        help="Run tests that use abp_app over this transport; repeat it for several.",
    )
    group.addoption(
        "--abp-output",
        metavar="DIR",
        default="abp-results",
        help="Folder for the reports of failed tests: recording, trace, artifacts (default: abp-results).",
    )
    group.addoption("--abp-evidence", metavar="KINDS", help=_EVIDENCE)
    parser.addini("abp_evidence", _EVIDENCE, default="")
    group.addoption("--abp-update-golden", action="store_true", help="Write golden files instead of comparing.")
    for name, metavar, text in _NUMBERS:
        group.addoption(f"--abp-{name.replace('_', '-')}", metavar=metavar, help=text)
        parser.addini(f"abp_{name}", text)
    group.addoption("--abp-headed", action="store_true", help=_HEADED)
    parser.addini("abp_headed", _HEADED, type="bool", default=False)


def check_options(config: pytest.Config) -> None:
    """Raise :class:`pytest.UsageError` for a number or kinds of evidence that make no sense."""
    if text := _evidence_text(config):
        from ..errors import UsageError
        from ..session.evidence import read_evidence

        try:
            read_evidence(text)
        except UsageError as error:
            raise pytest.UsageError(f"--abp-evidence: {error.message}") from None
    for name, _, _ in _NUMBERS:
        number_option(config, name)


def number_option(config: pytest.Config, name: str) -> float | None:
    """Return the number that an option gives, else the ini key of the same name, else ``None``."""
    text = config.getoption(f"abp_{name}") or config.getini(f"abp_{name}")
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not number > 0:
        raise pytest.UsageError(f"abp_{name} is a number above 0, not {text!r}")
    return number


def browser_options(config: pytest.Config) -> dict[str, Any]:
    """Return the options of :class:`~transports.Browser` that were asked for."""
    slow_mo = number_option(config, "slowmo")
    options: dict[str, Any] = {} if slow_mo is None else {"slow_mo": slow_mo}
    if config.getoption("--abp-headed") or config.getini("abp_headed"):
        options["headless"] = False
    return options


def _evidence_text(config: pytest.Config) -> str:
    return str(config.getoption("--abp-evidence") or config.getini("abp_evidence"))


def evidence_option(config: pytest.Config) -> dict[str, Any]:
    """Return the option ``evidence`` of :func:`transports.connect`, if any was asked for."""
    if not (text := _evidence_text(config)):
        return {}
    from ..session.evidence import GeneralEvidence, read_evidence

    return {"evidence": GeneralEvidence(read_evidence(text))}


def traces_here(options: Mapping[str, Any]) -> bool:
    """Whether the plugin traces a session with these options of :func:`transports.connect`: not in a page that is the
    test's own, nor where calls have traces of their own, since a browser makes one trace at a time."""
    evidence = options.get("evidence")
    return "page" not in options and not (evidence and "trace" in evidence.kinds())


def output_folder(config: pytest.Config) -> Path:
    """Return the folder for the reports of all runs."""
    return config.rootpath / str(config.getoption("--abp-output"))


def starts_browser(target: str, options: Mapping[str, object]) -> bool:
    """Whether a session needs a browser, and its options name none."""
    named = {"page", "browser", "profile", "cdp_url", "browser_server", "context", "storage_state", "headless"}
    return is_page(target) and not named & set(options)
