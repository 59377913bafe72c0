"""Options that are written once, shown in the reference as the keyword parameters of each function that takes them.

Griffe loads this as an extension (``zensical.toml``). Its own extension for ``Unpack`` leaves inherited options out.
"""

from __future__ import annotations

from typing import Any

import griffe

from transports._internal.arguments import showing_options


class Options(griffe.Extension):
    """Replaces ``**options: Unpack[X]`` by the fields of ``X``.

    Defaults are those that ``@showing_options(X, …)`` names.
    """

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Replace the parameters in a package that was just read."""
        self._package = pkg
        self._expand(pkg)

    def _expand(self, obj: griffe.Object) -> None:
        if isinstance(obj, griffe.Function):
            for decorator in obj.decorators:
                if (
                    isinstance(decorator.value, griffe.ExprCall)
                    and str(decorator.value.function) == showing_options.__name__
                ):
                    self._spread(obj, decorator.value)
        for member in obj.members.values():
            if isinstance(member, griffe.Object):
                self._expand(member)

    def _spread(self, function: griffe.Function, call: griffe.ExprCall) -> None:
        shown, *arguments = call.arguments
        defaults = {
            argument.name: str(argument.value) for argument in arguments if isinstance(argument, griffe.ExprKeyword)
        }
        options = self._package[function.resolve(str(shown)).removeprefix("transports.")]
        del function.parameters[[*function.parameters][-1].name]
        for name, field in options.all_members.items():
            function.parameters.add(
                griffe.Parameter(
                    name,
                    annotation=field.annotation,
                    kind=griffe.ParameterKind.keyword_only,
                    default=defaults.get(name, "None"),
                )
            )
