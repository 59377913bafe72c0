"""Name, version and address of the project in all files that repeat them. Their one place is pyproject.toml.

:func:`write_places` writes the other files; :func:`set_address` writes the addresses into pyproject.toml itself.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

__all__ = ["project_of", "set_address", "write_places"]

_URLS = re.compile(r"\[project\.urls\]\n(?:[^\[\n].*\n)*\n")
_BADGES = re.compile(r"<!-- badges -->\n.*?<!-- /badges -->\n", re.DOTALL)
_REGISTRY_NAME = re.compile(r"(?<=<!-- mcp-name: )\S+(?= -->)")


def project_of(root: Path) -> dict[str, Any]:
    """Return the table ``[project]`` of pyproject.toml."""
    project: dict[str, Any] = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project


def set_address(root: Path, source: str, site: str | None = None) -> None:
    """Write ``[project.urls]``: ``source`` is the address of the repository, ``site`` that of the built documentation.

    Raises :class:`ValueError` for anything but an address ``https://HOST/OWNER/NAME``."""
    source = source.rstrip("/").removesuffix(".git")
    for url in filter(None, (source, site)):
        parts = urlsplit(url)
        if parts.scheme != "https" or not parts.hostname or parts.username or parts.query or parts.fragment:
            raise ValueError(f"{url!r} is not an address https://HOST/… without credentials, query and fragment")
        if re.search(r'[\s"\\<>]', url):
            raise ValueError(f"{url!r} has characters that no address has")
    if len(urlsplit(source).path.strip("/").split("/")) < 2:
        raise ValueError(f"{source!r} is not the address of a repository, https://HOST/OWNER/NAME")
    urls = {
        "Source": source,
        "Documentation": site or f"{source}/blob/main/docs/index.md",
        "Changelog": f"{source}/blob/main/CHANGELOG.md",
        "Issues": f"{source}/issues",
    }
    path = root / "pyproject.toml"
    table = "[project.urls]\n" + "".join(f'{name} = "{url}"\n' for name, url in urls.items()) + "\n"
    text = _URLS.sub("", path.read_text(encoding="utf-8"))
    path.write_text(text.replace("[project.scripts]\n", f"{table}[project.scripts]\n", 1), encoding="utf-8")


def write_places(root: Path) -> list[str]:
    """Write name, version and addresses into the files that repeat them; return the names of those that changed."""
    project = project_of(root)
    changed = []
    for name, made in _PLACES.items():
        path = root / name
        before = path.read_text(encoding="utf-8")
        after = made(before, project)
        if after != before:
            path.write_text(after, encoding="utf-8")
            changed.append(name)
    return changed


def _source(project: Mapping[str, Any]) -> str | None:
    source: str | None = project.get("urls", {}).get("Source")
    return source


def _registry_name(project: Mapping[str, Any], now: str) -> str:
    """Return the name in the MCP registry: on GitHub that of the repository, elsewhere what a person chose."""
    parts = urlsplit(_source(project) or "")
    owner, _, name = parts.path.strip("/").partition("/")
    return f"io.github.{owner}/{name}" if parts.hostname == "github.com" and name else now


def _registry_entry(text: str, project: Mapping[str, Any]) -> str:
    entry = json.loads(text)
    version, source = project["version"], _source(project)
    entry["name"] = _registry_name(project, entry["name"])
    entry["version"] = version
    entry.pop("repository", None)
    if source:
        forge = (urlsplit(source).hostname or "").split(".")[-2:][0]
        entry["repository"] = {"url": source, "source": forge}
    (package,) = entry["packages"]
    package |= {"identifier": project["name"], "version": version}
    with_extras = package["runtimeArguments"][0]
    with_extras["value"] = re.sub(r"==.*", f"=={version}", with_extras["value"])
    return json.dumps(entry, indent=2, ensure_ascii=False) + "\n"


def _citation(text: str, project: Mapping[str, Any]) -> str:
    text = re.sub(r"(?m)^version: .*$", f"version: {project['version']}", text)
    text = re.sub(r"(?m)^repository-code: .*\n", "", text)
    source = _source(project)
    return f"{text.rstrip()}\nrepository-code: {source}\n" if source else text


def _readme(text: str, project: Mapping[str, Any]) -> str:
    text = _REGISTRY_NAME.sub(lambda found: _registry_name(project, found[0]), text)
    return _BADGES.sub(lambda _: f"<!-- badges -->\n{_badges(project)}<!-- /badges -->\n", text)


def _badges(project: Mapping[str, Any]) -> str:
    source = _source(project)
    if source is None:
        return ""
    name = project["name"]
    badges = [
        f"[![version](https://img.shields.io/pypi/v/{name})]({source})",
        f"[![Python](https://img.shields.io/pypi/pyversions/{name})]({source})",
    ]
    if urlsplit(source).hostname == "github.com":
        tests = f"{source}/actions/workflows/test.yml"
        badges.append(f"[![tests]({tests}/badge.svg)]({tests})")
    return "\n".join(badges) + "\n"


def _site(text: str, project: Mapping[str, Any]) -> str:
    text = re.sub(r"(?m)^site_url = .*\n", "", text)
    site, source = project.get("urls", {}).get("Documentation"), _source(project)
    if not site or site.startswith(f"{source}/"):
        return text
    return re.sub(r"(?m)^(site_name = .*\n)", lambda found: f'{found[1]}site_url = "{site}"\n', text, count=1)


def _container(text: str, project: Mapping[str, Any]) -> str:
    labels = {"version": project["version"], "licenses": project["license"]}
    if source := _source(project):
        labels["source"] = source
    line = "LABEL " + " ".join(f'org.opencontainers.image.{name}="{value}"' for name, value in labels.items())
    return re.sub(r"(?m)^LABEL .*$", lambda _: line, text)


_PLACES: Mapping[str, Callable[[str, Mapping[str, Any]], str]] = {
    "release/server.json": _registry_entry,
    "CITATION.cff": _citation,
    "README.md": _readme,
    "zensical.toml": _site,
    "release/Containerfile": _container,
}
