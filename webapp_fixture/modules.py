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
        ValueError: a module imports or exports in another way, or imports a module that imports it.
    """
    parts: dict[Path, str] = {}
    under_way: set[Path] = set()

    def add(path: Path) -> str:
        if path in under_way:
            raise ValueError(f"{path.name} imports a module that imports it")
        if path not in parts:
            under_way.add(path)
            text = _IMPORT.sub(partial(imported, path.parent), path.read_text("utf-8"))
            names = ", ".join(match[1] or match[2] for match in _EXPORT.finditer(text))
            text = _EXPORT.sub("", text)
            if left := _LEFT.search(text):
                raise ValueError(f"{path.name}: cannot join {left[0]!r}")
            under_way.remove(path)
            parts[path] = (
                f"// {path.name}\nconst module{len(parts)} = (() => {{\n{text}\nreturn {{ {names} }};\n}})();\n"
            )
        return f"module{list(parts).index(path)}"

    def imported(folder: Path, match: re.Match[str]) -> str:
        return f"const {match[1]} = {add((folder / match[2]).resolve())};"

    add(entry.resolve())
    return "".join(parts.values())
