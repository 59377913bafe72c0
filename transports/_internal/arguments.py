"""Decorators of public functions: wrong arguments are a :class:`UsageError`, errors have a short traceback, and options
of several functions are written once."""

from __future__ import annotations

import asyncio
import builtins
import functools
import inspect
import logging
import os
import sys
import sysconfig
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from itertools import chain, cycle
from numbers import Real
from pathlib import Path
from types import NoneType, TracebackType, UnionType
from typing import Any, ForwardRef, Literal, NamedTuple, ParamSpec, TypeVar, Union, get_args, get_origin, is_typeddict

from ..errors import ABPError, UsageError, spelled

logger = logging.getLogger("transports")

P = ParamSpec("P")
T = TypeVar("T")
E = TypeVar("E", bound=ABPError)
F = TypeVar("F", bound=Callable[..., object])

#: Folders of code that is not the caller's: this package, other packages and the standard library.
_LIBRARIES = (str(Path(__file__).parents[1]), *(sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")))
#: Types of lists, which a text is not.
_LISTS = (Sequence, Collection, Iterable)
_TYPE_NAMES: Mapping[object, str] = {
    bool: "True or False",
    bytes: "bytes",
    int: "a whole number",
    str: "text",
    os.PathLike: "a path",
    Callable: "a function",
    Mapping: "a mapping such as {'name': …}",
    Real: "a number",
    **dict.fromkeys(_LISTS, "a list"),
}

#: What a message says these parameters must be, with an example, instead of their types.
_EXPECTED: Mapping[str, str] = {
    "artifact": "a reference, such as result.artifact(), or an id",
    "browser": "the name of a browser, or a Browser or Pool to share",
    "capability": "a name as text, such as 'export.pdf'",
    "params": "a mapping of names to values, such as {'html': '<h1>Hi</h1>'}",
    "store": "a store, such as open_store('memory:'), or an object that has one",
    "target": "text, such as 'http://127.0.0.1:8000/'",
}


def require_plain_function(name: str, callback: object) -> None:
    """Refuse a coroutine function as a callback that is not awaited. Raises :class:`~transports.errors.UsageError`."""
    if inspect.iscoroutinefunction(callback):
        raise UsageError(f"{name}= must be a plain function, not a coroutine function: it is not awaited")


def short_traceback(function: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Decorate a public function that returns an awaitable: its arguments are checked (:func:`validate_arguments`), an
    :class:`ABPError` gets a short traceback, and a cancellation gets none, unless code of the caller is
    in it. The whole traceback is logged at the level DEBUG of the logger ``transports``. Other exceptions are faults of
    this library or of a callback, and keep their tracebacks."""

    @functools.wraps(function)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        __tracebackhide__ = True
        try:
            _check_arguments(function, args, kwargs)
            return await function(*args, **kwargs)
        except ABPError as error:
            if logger.isEnabledFor(logging.DEBUG):
                logger.debug("%s", error.message, exc_info=error)
            raise with_short_traceback(error)  # noqa: B904 - it is the same error
        except asyncio.CancelledError as stop:
            # Ctrl-C or a timeout of the caller is no fault: the traceback shows only where the caller waited.
            if callers_traceback(stop.__traceback__) is not None:
                raise
            raise stop.with_traceback(None)  # noqa: B904 - it is the same exception

    return call


def validate_arguments(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a public function that returns no awaitable: an argument that does not have the type of its annotation
    raises a :class:`UsageError`, and an :class:`ABPError` gets a short traceback. A timeout is not checked here, since
    it is checked together with its range where it is used."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        __tracebackhide__ = True
        try:
            _check_arguments(function, args, kwargs)
            return function(*args, **kwargs)
        except ABPError as error:
            raise with_short_traceback(error)  # noqa: B904 - it is the same error

    return call


def validate_fields(class_: type[T]) -> type[T]:
    """Decorate a dataclass, above ``@dataclass``: its fields are checked as arguments are."""
    setattr(class_, "__init__", validate_arguments(vars(class_)["__init__"]))  # noqa: B010 - a type checker refuses `=`
    return class_


def with_short_traceback(error: E) -> E:
    """Remove the traceback of an error, and the tracebacks of its causes that contain no code of the caller. Frames of
    this library do not help a user: the message says what happened and what to do."""
    cause: BaseException | None = error
    seen: set[int] = set()
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        if cause is error or callers_traceback(cause.__traceback__) is None:
            cause.__traceback__ = None
        context = None if cause.__suppress_context__ else cause.__context__
        cause = cause.__cause__ or context
    return error


def callers_traceback(traceback: TracebackType | None) -> TracebackType | None:
    """Return the traceback without the frames of this package and of libraries; ``None`` if none are left."""
    callers_frames = []
    while traceback is not None:
        filename = traceback.tb_frame.f_code.co_filename
        if not filename.startswith((*_LIBRARIES, "<frozen")):
            callers_frames.append(traceback)
        traceback = traceback.tb_next

    callers = None
    for frame in reversed(callers_frames):
        callers = TracebackType(callers, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return callers


def _check_arguments(function: Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]) -> None:
    """Check the types of the arguments. If a function with ``params`` gets an unknown option, that is probably a
    parameter of the app, and the error says so."""
    parameters = _parameters(function)
    for name, value in chain(zip(parameters, args, strict=False), kwargs.items()):
        parameter = parameters.get(name)
        if parameter is not None:
            if type(value) not in parameter.accepted_types:
                parameter.check(value)
        elif name not in parameters and "params" in parameters:
            raise UsageError(_unknown_option(name, parameters))


def _unknown_option(name: str, options: Mapping[str, object]) -> str:
    import difflib  # late: only for this message

    close = difflib.get_close_matches(name, options, n=1)
    if close:
        return f"unknown option {name}=; did you mean {close[0]}=?"
    return f"unknown option {name}=; the app's parameters are one mapping, such as app.call('x', {{{name!r}: …}})"


class _AcceptedType(NamedTuple):
    """A type that an argument may have. ``item_kinds`` are the types of its items, or empty if any items are
    accepted."""

    kind: type
    item_kinds: tuple[type, ...] = ()

    def includes(self, value: object) -> bool:
        is_text_for_list = self.kind in _LISTS and isinstance(value, str | bytes)
        if not isinstance(value, self.kind) or is_text_for_list:
            return False
        return not self.item_kinds or all(map(isinstance, _items(value), cycle(self.item_kinds)))


class _Parameter:
    """A parameter of a public function, which checks its arguments. ``hint`` is its annotation; if that is text,
    ``names`` are the names of its module. Messages write an ``option`` as ``name=``."""

    def __init__(self, name: str, hint: object, names: Mapping[str, object], *, option: bool) -> None:
        self._name = name
        self._is_option = option
        self._hint = hint
        self._names = names
        #: Types whose values are all accepted, as far as is known.
        self.accepted_types: set[type] = set()

    def check(self, value: object) -> None:
        # For None the annotation itself is enough. Its other types are not read, since their modules may load slowly.
        if value is None and isinstance(self._hint, str) and self._hint.endswith("| None"):
            self.accepted_types.add(NoneType)
            return

        for accepted in self._accepted:
            if accepted.includes(value):
                # A type with items is not remembered: the next list of this type may have other items.
                if not accepted.item_kinds:
                    self.accepted_types.add(type(value))
                return

        label = self._name
        if self._is_option:
            label = spelled(f"{self._name}=")
        raise UsageError(f"{label} must be {self._expected()}, not {_kind_of(value)}")

    def _expected(self) -> str:
        if self._name in _EXPECTED:
            return _EXPECTED[self._name]
        names = [_type_name(kind, item_kinds) for kind, item_kinds in self._accepted if kind is not NoneType]
        without_repetition = dict.fromkeys(names)
        return " or ".join(without_repetition)

    @functools.cached_property
    def _accepted(self) -> list[_AcceptedType]:
        """The accepted types. They are read only when there is a value to check, because the modules of some are slow
        to import."""
        if self._name == "timeout":
            # A timeout is checked together with its range where it is used.
            return [_AcceptedType(object)]
        hint = self._hint
        if isinstance(hint, str):
            names = _Names(vars(builtins) | dict(self._names))
            hint = eval(hint, {}, names)
        alternatives = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        return [accepted for alternative in alternatives for accepted in _checkable_types(alternative)]


class _Names(dict[str, object]):
    """Names for the evaluation of an annotation. A class that neither the module nor the package has, such as
    Playwright's ``Page``, is imported for type checkers alone. It becomes a class that compares values by its name."""

    def __missing__(self, name: str) -> object:
        package = sys.modules[__name__.partition(".")[0]]
        if name in package.__all__:
            return getattr(package, name)
        return _OnlyNamed(name, (), {})


class _OnlyNamed(type):
    def __instancecheck__(cls, value: object) -> bool:
        return any(base.__name__ == cls.__name__ for base in type(value).__mro__)


def _checkable_types(hint: object) -> list[_AcceptedType]:
    """Return the types that :func:`isinstance` can check for an annotation; ``object`` for protocols and the like."""
    kind = get_origin(hint) or hint
    arguments = get_args(hint)
    if kind is Literal:
        return [_AcceptedType(type(choice)) for choice in arguments]
    if kind is Path:
        return [_AcceptedType(os.PathLike)]
    if kind is float:
        return [_AcceptedType(Real)]
    if kind is tuple:
        return [_AcceptedType(Sequence)]
    if is_typeddict(kind):
        return [_AcceptedType(Mapping)]
    if not isinstance(kind, type) or kind is Any or not _is_checkable(kind):
        return [_AcceptedType(object)]

    # Items of an Iterable are not checked: a generator would be used up.
    has_lasting_items = kind in (Mapping, Sequence, Collection)
    if has_lasting_items and all(isinstance(item, type) and item is not object for item in arguments):
        return [_AcceptedType(kind, arguments)]
    return [_AcceptedType(kind)]


def _is_checkable(kind: type) -> bool:
    try:
        isinstance(None, kind)
    except TypeError:
        return False
    return True


def _items(value: object) -> Iterator[object]:
    if isinstance(value, Mapping):
        return chain.from_iterable(value.items())
    assert isinstance(value, Iterable)
    return iter(value)


def _type_name(kind: type, item_kinds: tuple[type, ...] = ()) -> str:
    if item_kinds:
        container = "a mapping" if kind is Mapping else "a list"
        return f"{container} of {' to '.join(map(_type_name, item_kinds))}"
    if kind in _TYPE_NAMES:
        return _TYPE_NAMES[kind]
    article = "an" if kind.__name__[0] in "AEIOU" else "a"
    return f"{article} {kind.__name__}"


def _kind_of(value: object) -> str:
    """Describe the type of a value for a message. The value itself is not shown, since it may be secret."""
    kind = type(value).__name__
    if not isinstance(value, Mapping | list | tuple) or not value:
        return kind
    item_kinds = dict.fromkeys(type(item).__name__ for item in _items(value))
    return f"{kind} of {', '.join(item_kinds)}"


@functools.cache
def _parameters(function: Callable[..., object]) -> Mapping[str, _Parameter | None]:
    """Return the parameters of a function by their names. A parameter without an annotation is ``None``."""
    names = inspect.unwrap(function).__globals__
    parameters: dict[str, _Parameter | None] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.annotation is parameter.empty:
            parameters[name] = None
        elif parameter.kind is parameter.VAR_KEYWORD:
            parameters |= _unpacked_options(parameter.annotation, names)
        else:
            is_optional = parameter.kind is parameter.KEYWORD_ONLY or parameter.default is not parameter.empty
            is_option = is_optional and name != "params"
            parameters[name] = _Parameter(name, parameter.annotation, names, option=is_option)
    return parameters


def _unpacked_options(annotation: str, names: Mapping[str, object]) -> dict[str, _Parameter]:
    """Return the options of an annotation ``Unpack[…]``, by their names."""
    (typed_dict,) = get_args(eval(annotation, {}, _Names(names)))
    options = {}
    for name, hint in typed_dict.__annotations__.items():
        names_of_its_module = vars(sys.modules[hint.__forward_module__])
        options[name] = _Parameter(name, hint.__forward_arg__, names_of_its_module, option=True)
    return options


def showing_options(options: type, **defaults: object) -> Callable[[F], F]:
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
