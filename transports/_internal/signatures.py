"""Keyword options that are written once, as a ``TypedDict``, for all functions that take them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import ForwardRef, TypeVar

F = TypeVar("F", bound=Callable[..., object])


def showing(options: type, **defaults: object) -> Callable[[F], F]:
    """Decorate a function that ends with ``**NAME: Unpack[options]``: ``inspect.signature`` and ``help`` show each
    option, as if it were written out. Its default is ``None``, unless ``defaults`` has another."""

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        *parameters, _ = signature.parameters.values()
        for name, hint in options.__annotations__.items():
            annotation = hint.__forward_arg__ if isinstance(hint, ForwardRef) else hint
            default = defaults.get(name)
            parameters.append(
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            )

        annotations = {
            parameter.name: parameter.annotation
            for parameter in parameters
            if parameter.annotation is not parameter.empty
        }
        function.__annotations__ = {**annotations, "return": signature.return_annotation}
        vars(function)["__signature__"] = signature.replace(parameters=parameters)
        return function

    return decorate
