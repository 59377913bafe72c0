"""Groups of options that several commands take: each is a dataclass, written once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cached_property, update_wrapper
from typing import Any, Generic, TypeVar, get_type_hints

__all__ = ["spread_groups"]

R = TypeVar("R")


class spread_groups(Generic[R]):
    """A command for Typer that has the fields of a dataclass in the place of each parameter that is one. Every field
    has a default.

    Its signature is made when it is asked for: of all commands that takes a while, and one is called."""

    def __init__(self, command: Callable[..., R]) -> None:
        self._command = command
        update_wrapper(self, command, assigned=("__module__", "__name__", "__qualname__", "__doc__"), updated=())

    def __call__(self, **given: Any) -> R:
        for name, group in self._groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        return self._command(**given)

    @cached_property
    def _own(self) -> inspect.Signature:
        return inspect.signature(self._command, eval_str=True)

    @cached_property
    def _groups(self) -> dict[str, Any]:
        return {name: one.annotation for name, one in self._own.parameters.items() if is_dataclass(one.annotation)}

    @cached_property
    def __signature__(self) -> inspect.Signature:
        parameters: list[inspect.Parameter] = []
        for name, one in self._own.parameters.items():
            if (group := self._groups.get(name)) is None:
                parameters.append(one)
                continue
            hints = get_type_hints(group, include_extras=True)
            parameters += [
                one.replace(name=field.name, default=field.default, annotation=hints[field.name])
                for field in fields(group)
            ]
        return self._own.replace(parameters=parameters)

    @property
    def __annotations__(self) -> dict[str, Any]:  # type: ignore[override]
        return {one.name: one.annotation for one in self.__signature__.parameters.values()}
