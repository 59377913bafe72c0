"""Elicitation at the terminal: an app's questions are asked there, or noted on stderr if there is none."""

from __future__ import annotations

import asyncio
import base64
import math
import mimetypes
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..._internal.files import expand_home, read_regular
from ..._internal.redaction import Redactor
from ...errors import UsageError
from ...protocol._elicitation import DECLINED, Question, default_answer, model_messages, question_of, question_text
from ...protocol._payloads import ElicitationRequest
from ...protocol._plain_text import plain_text
from ...protocol.schema import check_params
from ._output import print_line, print_note

if TYPE_CHECKING:
    from ...session._events import Event
    from ...session._session import Session


class _Declined(Exception):
    """Raised for Ctrl-C or Ctrl-D in an answer."""


def _question_line(params: Mapping[str, object]) -> str:
    text = " ".join(question_text(params).split())
    max_chars = 300
    if len(text) > max_chars:
        text = text[:max_chars] + "…"
    return text


@asynccontextmanager
async def noting_questions(app: Session) -> AsyncIterator[None]:
    """While the context lasts, print a note for each question of the app, which gets its default answer. At the end the
    session is closed, so that no question is missed."""

    async def note(events: AsyncIterator[Event]) -> None:
        async for event in events:
            if isinstance(event, ElicitationRequest):
                print_note(_default_note(event), always=True)

    async with app.events() as events:
        noting = asyncio.ensure_future(note(events))
        try:
            yield
        finally:
            await app.aclose()
            await noting


def _default_note(request: ElicitationRequest) -> str:
    answer = default_answer(request)
    outcome = "declined"
    if answer != DECLINED:
        outcome = f"answered with its own default ({dict(answer)['data']})"
    return f"{_question_line(request.params)} ({request.method}): {outcome}, since there is no terminal to ask at"


class Questions:
    """Asks the app's questions at the terminal, one at a time; Ctrl-C and Ctrl-D decline. ``pause`` is a context in
    which other output stops."""

    def __init__(self, pause: Callable[[], AbstractContextManager[None]]) -> None:
        self._pause = pause
        self._lock = asyncio.Lock()

    async def answer(self, request: ElicitationRequest) -> Mapping[str, object]:
        """Return the user's answer as ``{"success": …, "data": …}``. This is the elicitation handler of a session."""
        from prompt_toolkit.application import in_terminal

        from ._terminal import LineReader

        # in_terminal() suspends the prompt of `abp shell`, if it is shown.
        async with self._lock, in_terminal():
            with self._pause():
                LineReader().drop_typed()
                try:
                    answer = await self._ask_user(request)
                except _Declined:
                    answer = DECLINED
                if answer == DECLINED:
                    print_note(f"{request.method}: declined")
                return answer

    async def _ask_user(self, request: ElicitationRequest) -> Mapping[str, object]:
        if request.method == "elicitation/resource":
            return await self._ask_for_file(request.params)
        if request.method == "sampling/create":
            lines = _prompt_text(request.params).splitlines()
            _print_question("The app asks a language model; type an answer for it", lines)
            return {"success": True, "data": {"result": await self._read_line("answer")}}

        question = question_of(request)
        if question is None:
            print_note(f"the app asks {request.method}, which cannot be answered at a terminal")
            return DECLINED
        return await self._ask_form(question)

    async def _ask_for_file(self, params: Mapping[str, object]) -> Mapping[str, object]:
        lines = question_text(params).splitlines()
        for key in ("type", "uri"):
            if isinstance(params.get(key), str):
                lines.append(f"{key}: {params[key]}")
        _print_question("The app asks for a file", lines)
        return {"success": True, "data": await self._read_file()}

    async def _ask_form(self, question: Question) -> Mapping[str, object]:
        _print_question("The app asks", question.message.splitlines())
        properties: Any = question.schema["properties"]
        required: Any = question.schema["required"]
        labels = {"value": "answer", "confirmed": "yes or no", "selected": "choose"}
        content: dict[str, object] = {}
        for name, schema in properties.items():
            if question.whole:
                label = str(schema.get("title") or name)
            else:
                label = labels[question.field]
            field = _Field(label, dict(schema), needed=name in required)
            value = await self._read_value(field)
            if value is not None:
                content[name] = value
        return question.answer(content)

    async def _read_value(self, field: _Field) -> object:
        """Ask until the answer is valid, and return it; ``None`` for a field that is left out."""
        for line in field.explanation():
            print_line(f"  {line}")
        while True:
            text = await self._read_line(field.prompt(), secret=field.secret)
            try:
                return field.read(text)
            except UsageError as error:
                print_line(f"  {error.message}")

    async def _read_file(self) -> Mapping[str, object]:
        max_bytes = 64 << 20
        while True:
            text = await self._read_line("path of the file", paths=True)
            try:
                path = expand_home(text)
                data = await asyncio.to_thread(read_regular, path, max_bytes)
            except OSError as error:
                print_line(f"  {text}: {error.strerror}")
            except UsageError as error:
                print_line(f"  {error.message}")
            else:
                return _file_answer(path, data)

    async def _read_line(self, prompt: str, *, secret: bool = False, paths: bool = False) -> str:
        from prompt_toolkit.completion import PathCompleter

        from ._terminal import LineReader

        completer = PathCompleter(expanduser=True) if paths else None
        reader = LineReader(completer, secret=secret)
        try:
            return await reader.read(f"{plain_text(prompt)}: ")
        except (reader.Interrupted, EOFError):
            raise _Declined from None


def _print_question(title: str, lines: Sequence[str]) -> None:
    print_line(f"{title} (Ctrl-C declines):")
    for line in lines:
        print_line(f"  {line}")


class _Field:
    """Field of a form, with the JSON ``schema`` of its value. ``many`` means that it takes a list."""

    def __init__(self, label: str, schema: dict[str, Any], *, needed: bool) -> None:
        self.label = " ".join(label.split())[:80]
        self.schema = schema
        self.needed = needed
        self.secret = Redactor().is_secret(label)
        self.many = schema.get("type") == "array"
        self._choices = _choices(schema.get("items", {}) if self.many else schema)

    def explanation(self) -> list[str]:
        lines: list[str] = []
        description = str(self.schema.get("description", ""))
        if description:
            lines.append(description)
        width = len(str(len(self._choices)))
        for number, (_, title) in enumerate(self._choices, 1):
            lines.append(f"{number:>{width}}  {title}")
        return lines

    def prompt(self) -> str:
        """Return the label with the form of the answer and the default, such as ``colour 1-3 [red]``."""
        default = self.schema.get("default")
        kind = self.schema.get("type")
        if kind == "boolean":
            if default is True:
                return f"{self.label} [Y/n]"
            if default is False:
                return f"{self.label} [y/N]"
            return f"{self.label} [y/n]"
        prompt = self.label
        if self._choices:
            prompt += f" 1-{len(self._choices)}"
            if self.many:
                prompt += ", several with commas"
        elif kind in ("integer", "number"):
            prompt += f" ({kind})"
        if isinstance(default, list):
            prompt += f" [{', '.join(map(str, default))}]"
        elif default is not None:
            prompt += f" [{default}]"
        elif not self.needed:
            prompt += " (may be left out)"
        return prompt

    def read(self, text: str) -> object:
        """Read the answer to a field; ``None`` leaves the field out."""
        if not text.strip():
            default = self.schema.get("default")
            if self.needed and default is None:
                raise UsageError("an answer is needed; Ctrl-C declines")
            return default

        value = self._parse_text(text)
        schema = {"type": "object", "properties": {"field": {**self.schema}}}
        try:
            check_params("", schema, {"field": value})
        except UsageError as error:
            # The text of a fault begins with the path of the parameter, which means nothing to the user.
            faults: Any = error.details["faults"]
            _, _, reason = str(faults[0]).partition(": ")
            raise UsageError(reason) from None
        return value

    def _parse_text(self, text: str) -> object:
        if self._choices:
            if self.many:
                return [self._find_choice(part.strip()) for part in text.split(",")]
            return self._find_choice(text.strip())

        kind = self.schema.get("type")
        if kind == "boolean":
            word = text.strip().casefold()
            is_yes = word in ("y", "yes", "true", "1")
            if not is_yes and word not in ("n", "no", "false", "0"):
                raise UsageError("answer y or n")
            return is_yes
        if kind in ("integer", "number"):
            return _parse_number(text, kind)
        return text

    def _find_choice(self, text: str) -> str:
        for value, title in self._choices:
            if text in (value, title):
                return value
        if re.fullmatch(r"[0-9]{1,9}", text) and 0 < int(text) <= len(self._choices):
            value, _ = self._choices[int(text) - 1]
            return value
        raise UsageError(f"answer a number from 1 to {len(self._choices)}")


def _parse_number(text: str, kind: str) -> int | float:
    try:
        number = int(text) if kind == "integer" else float(text)
        is_finite = math.isfinite(number)
    except (ValueError, OverflowError):
        is_finite = False
    if not is_finite:
        raise UsageError(f"that is not a valid {kind}")
    return number


def _choices(schema: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the values and the titles of the choices that a schema allows; none if any value is allowed."""
    choices = schema.get("oneOf", schema.get("anyOf"))
    if choices:
        return [(choice["const"], choice["title"]) for choice in choices]
    values: Sequence[str] = schema.get("enum", ())
    return list(zip(values, schema.get("enumNames", values), strict=True))


def _file_answer(path: Path, data: bytes) -> dict[str, object]:
    """Return a file as the answer to ``elicitation/resource``: text as it is, anything else as base64."""
    mime_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    metadata: dict[str, object] = {"mimeType": mime_type, "filename": path.name, "size": len(data)}
    try:
        return {"content": data.decode(), "encoding": "utf-8", **metadata}
    except UnicodeDecodeError:
        return {"content": base64.b64encode(data).decode(), "encoding": "base64", **metadata}


def _prompt_text(params: Mapping[str, object]) -> str:
    """Return the whole prompt of an app for a language model."""
    system_prompt = params.get("systemPrompt", params.get("system"))
    messages = [text for _, text in model_messages(params)]
    texts = [system_prompt, *messages, question_text(params)]
    return "\n".join(text for text in texts if isinstance(text, str))
