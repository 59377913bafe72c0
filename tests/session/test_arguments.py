"""Arguments of a wrong type: each is told in one line before anything begins."""

from __future__ import annotations

import io
import os
import tempfile
import threading
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Connect
from tests.support.rows import each_row
from transports import Browser, Evidence, Recording, Retention, Router, UsageError, connect, open_store, sync
from transports.batch import Pool
from transports.memory import Call
from transports.session._connect import ConnectOptions
from transports.session._views import ViewOptions

URL = "http://127.0.0.1:9/"
#: Values of types that only few options take.
WRONG = (3, ["a"], {"a": 1}, object())
#: Wrong values that these options take.
TAKEN: Mapping[str, tuple[type, ...]] = {"requested_capabilities": (list,), "storage_state": (dict,), "timeout": (int,)}


async def content_of(params: Mapping[str, object], call: Call) -> object:
    file: Any = params["file"]
    return {"text": file.read().decode(), "filename": file.filename, "size": file.size}


@each_row(
    ("option", "value"),
    [
        pytest.param(option, value, id=f"{option}-{type(value).__name__}")
        for option in ConnectOptions.__annotations__
        for value in WRONG
        if not isinstance(value, TAKEN.get(option, ()))
    ],
)
def test_connect_options_reject_values_of_wrong_type(option: str, value: object) -> None:
    options: dict[str, Any] = {option: value}
    for connecting in (connect, sync.connect):
        with pytest.raises(UsageError, match=rf"^{option}=? must be .*, not ") as refused:
            connecting(URL, **options)
        assert "\n" not in refused.value.message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"headers": ["a"]}, "headers= must be a mapping of text to text, not list of str"),
        (
            {"headers": {"Authorization": b"Bearer s3cret"}},
            "headers= must be a mapping of text to text, not dict of str, bytes",
        ),
        ({"on_progress": 3}, "on_progress= must be a function, not int"),
        ({"requested_capabilities": "export.pdf"}, "requested_capabilities= must be a list of text, not str"),
    ],
)
def test_option_error_names_option_and_type_without_value(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        connect("ws://127.0.0.1:9/", **options)
    assert refused.value.message == message


async def test_session_methods_reject_arguments_of_wrong_type(app_of: Connect, tmp_path: Path) -> None:
    async with app_of({"x": content_of}) as session:
        app: Any = session
        options = ("on_progress", "idempotent", "once", "call_id")
        attempts: list[Callable[[Any], Awaitable[object]]] = [
            *(lambda value, name=name: app.call("x", {}, **{name: value}) for name in options),
            *(lambda value, name=name: app.start("x", {}, **{name: value}) for name in options),
            lambda value: app.call(value),
            lambda value: app.save(value, tmp_path / "file"),
            lambda value: app.save("id", value),
            lambda value: app.render_to_pdf(value),
            lambda value: app.screenshot(full_page=value),
            lambda value: app.resources.read(value),
        ]
        for attempt in attempts:
            for value in WRONG:
                with pytest.raises(UsageError, match=r"must be .*, not "):
                    await attempt(value)
        with pytest.raises(UsageError, match=r"capability must be .*'export\.pdf', not Capability"):
            await app.call(app.capabilities["x"])
        with pytest.raises(UsageError, match=r"params must be a mapping of names to values, .* not str"):
            await app.call("x", "text")
        for option in {*ViewOptions.__annotations__} - {"timeout", "size"}:
            for value in WRONG:
                with pytest.raises(UsageError, match=f"^{option}= must be .*, not "):
                    app.open_view("x", **{option: value})


@each_row(
    ("make", "argument"),
    [
        (lambda value: open_store(value), "url="),
        (lambda value: open_store("memory:", retention=value), "retention="),
        (lambda value: Router(value), "store"),
        (lambda value: Router(open_store("memory:"), policy=value), "policy="),
        (lambda value: Browser(headless=value), "headless="),
        (lambda value: Pool(store=value), "store="),
        (lambda value: Recording(value), "path"),
        (lambda value: Evidence(max_age=str(value)), "max_age="),  # type: ignore[arg-type]
        (lambda value: Retention(ttl_seconds=str(value)), "ttl_seconds="),  # type: ignore[arg-type]
    ],
)
def test_constructors_reject_arguments_of_wrong_type(make: Callable[[Any], object], argument: str) -> None:
    with pytest.raises(UsageError, match=f"^{argument} must be .*, not "):
        make(["a"])


async def test_app_parameter_as_keyword_error_shows_correct_call(app_of: Connect) -> None:
    async with app_of({"x": content_of}) as session:
        app: Any = session
        for attempt in (app.call, app.start, app.open_view):
            with pytest.raises(UsageError, match=r"unknown option rows=; .* such as app\.call\('x', {'rows': …}\)"):
                await attempt("x", rows=5)
        with pytest.raises(UsageError, match=r"unknown option timout=; did you mean timeout=\?"):
            await app.call("x", timout=5)


async def test_file_with_a_name_that_is_not_utf8_is_sent(app_of: Connect, tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.txt")
    try:
        path.write_bytes(b"text")
    except OSError:
        pytest.skip("this disk takes only names in UTF-8")
    async with app_of({"x": content_of}) as app:
        with path.open("rb") as file:
            for content in (path, file):
                data = (await app.call("x", {"file": content})).data
                assert data == {"text": "text", "filename": "caf\ufffd.txt", "size": 4}


async def test_an_open_file_is_read_in_a_thread_from_its_position(app_of: Connect, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"head and text")
    threads: list[threading.Thread] = []

    class Noting(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            threads.append(threading.current_thread())
            return super().read(size)

    async with app_of({"x": content_of}) as app:
        with path.open("rb") as file:
            file.seek(9)
            data = (await app.call("x", {"file": file})).data
            assert data == {"text": "text", "filename": "a.txt", "size": 4}
            assert not file.closed
            with pytest.raises(UsageError, match=r"at file has been read to its end; call its seek\(0\) first"):
                await app.call("x", {"file": file})
        with pytest.raises(UsageError, match="at file cannot be read: read of closed file"):
            await app.call("x", {"file": file})
        with (
            path.open() as text_file,
            pytest.raises(UsageError, match=r"file is a file in text mode; open it with open\(path"),
        ):
            await app.call("x", {"file": text_file})
        assert (await app.call("x", {"file": Noting(b"ab")})).data == {"text": "ab", "filename": None, "size": 2}
        with tempfile.NamedTemporaryFile() as temporary:
            temporary.write(b"cd")
            temporary.seek(0)
            data = (await app.call("x", {"file": temporary})).data
            assert data == {"text": "cd", "filename": Path(temporary.name).name, "size": 2}
    assert threads
    assert threading.main_thread() not in threads
