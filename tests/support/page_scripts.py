"""The scripts that run in other people's pages, read by a parser: what they use that a page can replace.

The rule: every native comes from ``natives.js``, saved before a script of the page can replace it, and nothing asks a
native object for a member by its name. So they use no global, look up no method or getter of a native, and no syntax
that calls one unseen: ``for … of``, spread of a list, patterns of lists, ``instanceof``, a promise as the result of an
async function.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import tree_sitter_javascript
from tree_sitter import Language, Node, Parser

import transports

ROOT = Path(transports.__file__).parent
SCRIPTS = sorted(script for room in ("playwright", "postmessage", "mcp") for script in (ROOT / room).rglob("*.js"))
NATIVES = ROOT / "playwright" / "js" / "natives.js"

#: No script can replace these.
_FIXED = {"window", "document", "location", "undefined", "arguments", "Infinity", "NaN"}
#: Objects of our own, whose members are ours.
_OURS = {"agent", "answers", "codec", "config", "effects", "harness", "host", "natives", "ofPage", "tools"}
#: Collections of natives.js, whose methods are their own.
_COLLECTIONS = {"Map", "Set", "WeakMap", "WeakSet"}
#: Members of ``window`` and ``document`` that are the page's to define, or that no script can replace.
_OF_THE_PAGE = {"abp", "top", "modelContext", "__abp_progress", "__abp_capabilities_changed", "name", "print"}
#: Methods of objects of the app, which are the app's to define, by script.
_APPS_METHODS = {
    "agent.js": {"call", "cancel", "initialize"},
    "adapter.js": {"run"},
    "codec.js": {"forEach", "toJSON"},
    "natives.js": {"forEach", "keys"},  # of collections of natives.js
    "webmcp_tools.js": {"executeTool", "getTools", "listTools"},
}
#: Members of messages, of objects of the app, and of records of our own. Natives have some of these names too.
_FIELDS = {
    "annotations", "code", "content", "data", "description", "details", "error", "event", "id", "isTrusted", "json",
    "kind", "length", "message", "method", "mimeType", "name", "origin", "params", "path", "payload", "port", "result",
    "signal", "size", "stack", "state", "style", "text", "title", "tools", "type", "uri", "url", "value",
}  # fmt: skip
#: Such members of single scripts.
_RECORDS = {
    "adapter.js": {"line", "required", "source"},
    "agent.js": {"at", "files", "options", "protocol"},
    "codec.js": {"height", "width"},  # of pixels
    "effects.js": {"attributes", "body", "clone", "files", "top"},  # no script can replace the top of any window
    "openai.js": {"href", "maxHeight", "mode", "prompt"},
    "view.js": {"blob", "call"},
    "webmcp_answers.js": {"contentEncoding", "filename", "format", "items", "pattern", "source"},
    "webmcp_tools.js": {"context", "ended", "then", "unregister", "window"},
}
#: Calls and classes whose options are looked up in the prototype of an object too.
_TAKE_OPTIONS = {"defineProperty", "targetAddEventListener", "observerObserve", "elementAttachShadow"}
#: Natives and functions of our own that return promises, without being async.
_PROMISING = {
    "apply", "blobArrayBuffer", "clipboardItemGetType", "fetch", "firstOf", "imageDecode", "responseBlob", "toReply",
    "wait",
}  # fmt: skip
_SCOPES = {
    "program", "statement_block", "for_statement", "for_in_statement", "arrow_function", "function_expression",
    "function_declaration", "method_definition", "catch_clause", "class", "class_declaration", "switch_body",
}  # fmt: skip
_PARSER = Parser(Language(tree_sitter_javascript.language()))


@dataclass(frozen=True, slots=True)
class Problem:
    """A use of something that a page can replace."""

    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.line}: {self.reason}"


def _text(node: Node | None) -> str:
    return node.text.decode() if node is not None and node.text is not None else ""


def _walk(node: Node) -> Iterator[Node]:
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield current
        waiting += reversed(current.children)


def _parse(script: str) -> Node:
    # An expression stands alone in each file.
    tree = _PARSER.parse(f"const script = {script}".encode())
    if tree.root_node.has_error:
        raise ValueError("the parser does not understand this script")
    return tree.root_node


def _bound(pattern: Node) -> Iterator[str]:
    """Yield the names that a pattern binds."""
    match pattern.type:
        case "identifier" | "shorthand_property_identifier_pattern":
            yield _text(pattern)
        case "pair_pattern":
            yield from _bound(pattern.child_by_field_name("value") or pattern)
        case "assignment_pattern" | "object_assignment_pattern":
            yield from _bound(pattern.child_by_field_name("left") or pattern)
        case _:
            for child in pattern.named_children:
                yield from _bound(child)


def _declared_in(scope: Node) -> set[str]:
    """Return the names that a scope declares itself."""
    names: set[str] = set()
    for field in ("parameters", "parameter", "name"):
        child = scope.child_by_field_name(field)
        if (child is not None and scope.type not in ("method_definition",)) or (child is not None and field != "name"):
            names |= set(_bound(child))
    if scope.type == "for_in_statement":
        names |= set(_bound(scope.child_by_field_name("left") or scope))
    waiting = list(scope.children)
    while waiting:
        node = waiting.pop()
        if node.type in ("variable_declarator", "class_declaration", "function_declaration"):
            names |= set(_bound(node.child_by_field_name("name") or node))
        if node.type not in _SCOPES:
            waiting += node.children
    return names


_FUNCTIONS = ("arrow_function", "function_expression", "function_declaration", "method_definition")


@cache
def _async_functions() -> frozenset[str]:
    """Return the names of all async functions of the scripts."""
    names: set[str] = set()
    for script in SCRIPTS:
        for node in _walk(_parse(script.read_text(encoding="utf-8"))):
            if node.type in _FUNCTIONS and _is_async(node):
                owner = node if node.type == "method_definition" else node.parent or node
                names.add(_text(owner.child_by_field_name("name") or owner.child_by_field_name("key")))
    return frozenset(names)


def _function_of(node: Node) -> Node | None:
    function = node.parent
    while function is not None and function.type not in _FUNCTIONS:
        function = function.parent
    return function


def _is_async(function: Node | None) -> bool:
    return function is not None and any(child.type == "async" for child in function.children)


def _reasons_of_result(node: Node) -> Iterator[str]:
    """Yield why the result of an async function is not safe: a promise there is asked for its ``then``."""
    match node.type:
        case "call_expression":
            called = node.child_by_field_name("function") or node
            name = _text(called.child_by_field_name("property") or called)
            if (
                name in _PROMISING
                or name in _async_functions()
                or any(name in names for names in _APPS_METHODS.values())
            ):
                yield f"a promise returned by an async function without await, of {name}"
        case "new_expression" if _text(node.child_by_field_name("constructor")) == "Promise":
            yield "a promise returned by an async function without await"
        case "ternary_expression" | "binary_expression" | "parenthesized_expression":
            for child in node.named_children[node.type == "ternary_expression" :]:
                yield from _reasons_of_result(child)


class _Script:
    """One script, searched for problems. ``members`` are the names of the members of natives."""

    def __init__(self, name: str, script: str, members: frozenset[str]) -> None:
        self.name = name
        self.root = _parse(script)
        self.members = members
        self._declared: dict[int, set[str]] = {}
        self.collections = {
            _text(node.child_by_field_name("name") or node.child_by_field_name("left"))
            for node in _walk(self.root)
            if node.type in ("variable_declarator", "assignment_pattern", "assignment_expression")
            and (value := node.child_by_field_name("value") or node.child_by_field_name("right")) is not None
            and value.type == "new_expression"
            and _text(value.child_by_field_name("constructor")) in _COLLECTIONS
        }

    def declares(self, node: Node, name: str) -> bool:
        """Return whether ``name`` is declared where ``node`` is."""
        scope: Node | None = node
        while scope is not None:
            if scope.type in _SCOPES:
                if scope.id not in self._declared:
                    self._declared[scope.id] = _declared_in(scope)
                if name in self._declared[scope.id]:
                    return True
            scope = scope.parent
        return False

    def problems(self) -> Iterator[Problem]:
        for node in _walk(self.root):
            for reason in self._reasons(node):
                yield Problem(node.start_point.row + 1, reason)

    def _reasons(self, node: Node) -> Iterator[str]:
        match node.type:
            case "identifier" | "shorthand_property_identifier":
                name = _text(node)
                if name not in _FIXED and not self.declares(node, name):
                    yield f"the global {name}"
            case "for_in_statement":
                yield "for … of or for … in"
            case "spread_element" if node.parent is not None and node.parent.type != "object":
                yield "spread of a list"
            case "array_pattern":
                yield "a pattern of a list"
            case "binary_expression" if _text(node.child_by_field_name("operator")) == "instanceof":
                yield "instanceof"
            case "member_expression":
                yield from self._reasons_of_member(node)
            case "object_pattern":
                yield from self._reasons_of_pattern(node)
            case "call_expression" | "new_expression":
                yield from self._reasons_of_call(node)
            case "return_statement" if node.named_children and _is_async(_function_of(node)):
                yield from _reasons_of_result(node.named_children[0])
            case "arrow_function" if _is_async(node):
                body = node.child_by_field_name("body")
                if body is not None and body.type != "statement_block":
                    yield from _reasons_of_result(body)

    def _reasons_of_member(self, node: Node) -> Iterator[str]:
        owner, name = node.child_by_field_name("object"), _text(node.child_by_field_name("property"))
        receiver = _text(owner)
        if receiver in ("window", "document"):
            if name not in _OF_THE_PAGE:
                yield f"{receiver}.{name}"
            return
        if name not in self.members or receiver in _OURS | self.collections | {"location"}:
            return
        parent = node.parent
        if name in _APPS_METHODS.get(self.name, ()):
            return
        is_call = (
            parent is not None and parent.type == "call_expression" and parent.child_by_field_name("function") == node
        )
        if is_call:
            yield f"the method {name} of {receiver}"
        elif name not in _FIELDS | _RECORDS.get(self.name, set()):
            yield f"the member {name} of {receiver}"

    def _reasons_of_pattern(self, node: Node) -> Iterator[str]:
        parent = node.parent
        source = _text(parent.child_by_field_name("value")) if parent is not None else ""
        for child in node.named_children:
            key = child.child_by_field_name("key") or child.child_by_field_name("left") or child
            name = _text(key)
            if source == "window" and name not in _OF_THE_PAGE:
                yield f"window.{name}"
            elif source in _OURS or source.startswith(("makeNatives(", "natives.")):
                continue
            elif (
                name in self.members
                and name not in _FIELDS | _RECORDS.get(self.name, set())
                and child.type != "rest_pattern"
            ):
                yield f"the member {name} in a pattern"

    def _reasons_of_call(self, node: Node) -> Iterator[str]:
        called = _text(node.child_by_field_name("function") or node.child_by_field_name("constructor"))
        arguments = node.child_by_field_name("arguments")
        if arguments is None or not (node.type == "new_expression" or called in _TAKE_OPTIONS):
            return
        for argument in arguments.named_children:
            if argument.type == "object" and not _text(argument).startswith("{ __proto__: null"):
                yield f"options of {called} with a prototype"


def problems_of(name: str, script: str, members: frozenset[str]) -> list[Problem]:
    """Return the uses of what a page can replace in a script; ``members`` are the names of all members of natives.

    Of ``natives.js`` only what it returns counts: the rest runs at its start only.
    """
    problems = list(_Script(name, script, members).problems())
    if name == NATIVES.name:
        begin = script[: script.index("return natives.freeze(")].count("\n")
        problems = [problem for problem in problems if problem.line > begin]
    return problems


def _constant(name: str) -> Node:
    for node in _walk(_parse(NATIVES.read_text(encoding="utf-8"))):
        if node.type == "variable_declarator" and _text(node.child_by_field_name("name")) == name:
            value = node.child_by_field_name("value")
            assert value is not None
            return value
    raise LookupError(name)


def _words(node: Node) -> list[str]:
    return [word for part in _walk(node) if part.type == "string_fragment" for word in _text(part).split()]


@cache
def saved_natives() -> Mapping[str, Sequence[str]]:
    """Return what ``natives.js`` saves: ``Array.prototype`` → its methods and getters, ``Object`` → its functions, and
    with the key ``window`` the globals themselves."""
    saved: dict[str, list[str]] = {}
    for pair in _constant("PROTOTYPES").named_children:
        key, (_, *names) = _text(pair.child_by_field_name("key")), _words(pair)
        saved[f"{key}.prototype"] = [name for name in names if not name.endswith("=")]
    for pair in _constant("STATICS").named_children:
        saved[_text(pair.child_by_field_name("key"))] = _words(pair)
    saved["window"] = [word for name in ("CLASSES", "COLLECTIONS", "FUNCTIONS") for word in _words(_constant(name))]
    return saved
