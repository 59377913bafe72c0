"""Names of a package that load when they are first used (PEP 562), and packages that only an extra installs."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module


def attach_stub(package: str, file: str) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` for a package. The stub beside ``file`` lists the names: each
    ``from .module import Name as Name``, which type checkers read too."""
    spec = sys.modules[package].__spec__
    # The loader also reads a stub in a zip file.
    stub = spec.loader.get_data(f"{file.rpartition('.')[0]}.pyi")  # type: ignore[union-attr]
    modules: dict[str, str] = {}
    for statement in ast.parse(stub).body:
        if isinstance(statement, ast.ImportFrom):
            module = f"{'.' * statement.level}{statement.module}"
            modules.update((alias.name, module) for alias in statement.names)
    names = sorted(modules)

    def load(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(modules[name], package), name)
        # The next use of the name finds it in the package.
        setattr(sys.modules[package], name, value)
        return value

    return load, names.copy, names


class MissingExtra(ImportError):
    """Raised for a package of an extra that is missing, or too old."""


@contextmanager
def requiring_extra(package: str, extra: str) -> Iterator[None]:
    """Turn an :class:`ImportError` in the block into one that says which ``extra`` installs the ``package``."""
    try:
        yield
    except MissingExtra:
        raise
    except ImportError as error:
        message = f"{package} is needed ({error}); install it: pip install 'abp-transports[{extra}]'"
        raise MissingExtra(message, name=error.name) from error
