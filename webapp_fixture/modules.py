"""The page's JavaScript modules as one script: forty requests were half of what opening the page costs a browser."""

import re
from functools import cache, partial
from pathlib import Path

_IMPORT = re.compile(r"^import (\{(?:(?!\bas\b)[^}])+\}) from '(\.[^']+)';$", re.MULTILINE)
_EXPORT = re.compile(
    r"^export (?:\{((?:(?!\bas\b)[^}])+)\};$|(?=(?:async )?(?:function\*?|class|const) ([\w$]+)))", re.MULTILINE
)
_LEFT = re.compile(r"^[ \t]*(?:import|export)\b.*", re.MULTILINE)


@cache
def joined(entry: Path) -> str:
    """Return a module and all that it imports as one script, each module a function that is called once, after those
    that it imports. A running server keeps the script.

    Known are ``import { a, b } from './file.js';`` on a line of its own and exports of functions, classes, constants
    and ``export { a, b };``.

    Raises:
        ValueError: a module imports or exports in another way, or imports a module that imports it."""
    names: dict[Path, str] = {}
    scripts: list[str] = []
    under_way: set[Path] = set()

    def add(path: Path) -> str:
        """Add a module after those that it imports, unless it is there already, and return its name."""
        if path in under_way:
            raise ValueError(f"{path.name} imports a module that imports it")
        if path in names:
            return names[path]
        under_way.add(path)
        text = _IMPORT.sub(partial(imported, path.parent), path.read_text("utf-8"))
        exported = ", ".join(match[1] or match[2] for match in _EXPORT.finditer(text))
        text = _EXPORT.sub("", text)
        unknown = _LEFT.search(text)
        if unknown:
            raise ValueError(f"{path.name}: cannot join {unknown[0]!r}")
        under_way.remove(path)
        names[path] = name = f"module{len(scripts)}"
        scripts.append(f"// {path.name}\nconst {name} = (() => {{\n{text}\nreturn {{ {exported} }};\n}})();\n")
        return name

    def imported(folder: Path, match: re.Match[str]) -> str:
        return f"const {match[1]} = {add((folder / match[2]).resolve())};"

    add(entry.resolve())
    return "".join(scripts)
