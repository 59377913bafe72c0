"""Apps by name: ``[apps.NAME]`` of ``abp.toml``, who may use them, and what of them is never shown."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.support.apps import socket_app
from tests.support.rows import each_row
from tests.support.slow import slow_but
from transports import Evidence, connect
from transports._internal.masking import KNOWN_SECRETS
from transports.artifacts import Scope, open_store
from transports.errors import ABPError, CapabilityError, UsageError
from transports.playwright._diagnosis import PageProblems, not_abp
from transports.protocol._plain_text import origin_of
from transports.session._app_tables import AppTables
from transports.session._evidence import with_default_evidence
from transports.session._secrets import Guard, Secrets

CANARY = "canary-7f3a-value"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working folder, of a user who trusts nothing yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("CANARY", CANARY)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    KNOWN_SECRETS.forget()


def key_app(seen: list[str]) -> AbstractAsyncContextManager[str]:
    """An app that answers the header ``X-Key`` of its connection; ``seen`` gets it too."""
    return socket_app(
        lambda _: {"success": True, "data": {"key": seen[-1]}},
        on_headers=lambda headers: seen.append(headers.get("X-Key", "")),
    )


def described(address: str, more: str = "") -> str:
    return (
        f'[apps.crm]\nurl = "ws://{address}/abp"\nusers = ["ann", "signed:*", "tenant:acme"]\nmax_sessions = 1\n'
        'evidence = "console,har"\n'
        f'headers = {{ X-Key = "Key ${{SECRET:CRM}}" }}\n{more}\n'
        f'[secrets.CRM]\nenv = "CANARY"\norigins = ["http://{address}"]\n'
    )


async def test_app_name_resolves_to_address_and_credentials(folder: Path) -> None:
    seen: list[str] = []
    async with key_app(seen) as address:
        # Editors of Windows begin a text with a byte order mark.
        (folder / "team.toml").write_text(described(address), encoding="utf-8-sig")
        async with connect("crm", config="team.toml", store=folder / "out") as app:
            result = await app.call("key.show")
            assert seen == [f"Key {CANARY}"] and result.data == {"key": "Key ${SECRET:CRM}"}
            assert {*result.evidence} == {"console"}  # it is in no page
            with pytest.raises(UsageError, match="crm has 1 sessions") as limited:
                await connect("crm", config="team.toml", store="memory:")
            assert limited.value.code == "LIMIT_REACHED"
        # it is free again; what is chosen for all apps goes after its own entry
        async with with_default_evidence(connect, "screenshot")("crm", config="team.toml", store="memory:") as app:
            assert {*(await app.call("key.show")).evidence} == {"console"}
        with pytest.raises(UsageError, match="video need an app in a page"):
            await connect("crm", config="team.toml", store="memory:", evidence=Evidence(video=True))
        for scope, allowed in (
            (Scope(user="ann"), True),
            (Scope(tenant="acme", user="signed:carol"), True),
            (Scope(tenant="other"), False),
            (Scope(tenant="acme"), True),
            (Scope(user="bob"), False),
        ):
            store = open_store("memory:").scoped(scope)
            if allowed:
                async with connect("crm", config="team.toml", store=store):
                    continue
            with pytest.raises(ABPError, match=r"'crm' is not a target"):  # as if it were not there
                connect("crm", config="team.toml", store=store)


async def test_configured_secret_is_not_sent_to_other_origins(folder: Path) -> None:
    seen: list[str] = []
    async with key_app(seen) as address:
        (folder / "team.toml").write_text(
            described(address).replace(f'origins = ["http://{address}', 'origins = ["http://a.test')
        )
        with pytest.raises(UsageError, match="the secret CRM may not be sent to") as refused:
            await connect("crm", config="team.toml", store="memory:")
        assert refused.value.code == "PERMISSION_DENIED" and seen == []


async def test_browser_server_headers_check_secret_origin(folder: Path) -> None:
    for bound, said in (
        ("http://a.test", "CRM may not be sent to (http|ws)://127.0.0.1:9/"),  # the app's origin
        ("http://127.0.0.1:9", "the variable NOT_SET has no characters"),  # it may be, and is read
    ):
        (folder / "team.toml").write_text(
            f'[apps.page]\nurl = "http://a.test/"\nheaders = {{ X-Key = "${{SECRET:CRM}}" }}\n'
            f'[secrets.CRM]\nenv = "NOT_SET"\norigins = ["{bound}"]\n'
        )
        with pytest.raises(UsageError, match=said):
            await connect("page", config="team.toml", store="memory:", cdp_url="http://127.0.0.1:9/")
        with pytest.raises(UsageError, match=said):
            await connect("page", config="team.toml", store="memory:", browser_server="ws://127.0.0.1:9/")


async def test_discovered_config_does_not_define_apps(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "abp.toml").write_text(described("127.0.0.1:9"))
    advice = (
        "you have not trusted the file yet; if it is yours, run `abp mcp --trust` in its folder, or set ABP_CONFIG="
    )
    with pytest.raises(
        UsageError, match=f"^this folder's abp.toml has an app crm, but {advice}abp.toml for one command"
    ):
        connect("crm", store="memory:")
    connect("ws://127.0.0.1:9/abp", store="memory:")
    assert "ignored secrets.CRM" in caplog.text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[apps.crm]\nurl = "ws://a.test/"\nstorage = "x"', r"apps\.crm\.storage: unknown; did you mean storage_st"),
        ('[apps.crm]\nur = "ws://a.test/"', r"team\.toml: apps\.crm\.ur: unknown; did you mean url\?"),
        ('[secrets.X]\nenv = "A"\norigin = ["http://a.test"]', r"secrets\.X\.origin: unknown; did you mean origins\?"),
        ('[apps.crm]\ntransport = "auto"', r"team\.toml: apps\.crm\.url: Field required"),
        ('[apps.crm]\nurl = "ws://a.test/${SECRET:X}"', r"crm\.url: messages show the address; put the secret into"),
        ('[apps.crm]\nurl = "ws://a.test/"\nheaders = {a = "${SECRET:NO}"}', r"crm: no table \[secrets\.NO"),
        ('[apps.crm]\nurl = "ws://a.test/"\nevidence = "film"', r"crm\.evidence: 'film' is not understood"),
        ('[apps."a b"]\nurl = "ws://a.test/"', r"team\.toml: apps\.a b"),
        ('[secrets.X]\nenv = "A"', r"secrets\.X\.origins: Field required"),
        ('[secrets.X]\nenv = "A"\nfile = "b"\norigins = ["http://a.test"]', r"secrets\.X: set exactly one of env"),
        ('[secrets.X]\nenv = "A"\norigins = ["a.test"]', r"secrets\.X\.origins: 'a\.test' is not an origin"),
        ('[secrets.X]\nenv = "A"\norigins = ["http://a.test/b"]', r"'http://a\.test/b' is not an origin"),
        ('[apps.crm]\nurl = "ws://a.test/"\nstorage_state = "no.json"', r"crm is not signed in; .*abp login crm"),
        ('[apps.crn]\nurl = "ws://a.test/"', r"unknown app 'crm'; did you mean crn\?"),
        *(
            (f'[apps.crm]\nurl = "ws://a.test/"\ntimeout = {text}', r"crm\.timeout")
            for text in ("1e308", "1000000.1", "true", "0", "1" + "0" * 400)
        ),
    ],
)  # fmt: skip
def test_named_app_config_error_names_location(folder: Path, text: str, said: str) -> None:
    (folder / "team.toml").write_text(text)
    with pytest.raises(UsageError, match=said):
        connect("crm", config="team.toml", store="memory:")


def test_arguments_override_file_and_paths_are_relative_to_it(folder: Path) -> None:
    (folder / "own").mkdir()
    text = '[apps.page]\nurl = "http://a.test/"\nprofile = "profile"\nheadless = false\ntimeout = 5\n'
    tables = {"apps": {"page": {"url": "http://a.test/", "profile": "profile", "headless": False, "timeout": 5}}}
    entry = AppTables.parse(tables, folder / "own/team.toml").apps["page"]
    assert entry.options == {"transport": "auto", "headless": False, "profile": folder / "own/profile", "timeout": 5.0}
    (folder / "own/team.toml").write_text(text)
    with pytest.raises(UsageError, match=r"storage_state= is for a new context"):  # the profile of the file counts too
        connect("page", config="own/team.toml", storage_state="x.json", store="memory:")


async def test_permission_that_the_app_requires_is_no_request_to_sign_in(folder: Path) -> None:
    error = {"code": "PERMISSION_REQUIRED", "message": "ask Bob for the key", "details": {"who": "Bob"}}
    store = open_store("memory:").scoped(Scope(user="ann"))
    async with socket_app(lambda _: {"success": False, "error": error}) as address:
        entry = f'[apps.crm]\nurl = "ws://{address}/abp"\nusers = ["ann"]\n'
        (folder / "team.toml").write_text(entry)
        async with connect("crm", config="team.toml", store=store) as app:
            with pytest.raises(CapabilityError, match=r"^key\.show: ask Bob for the key") as refused:
                await app.call("key.show")
            assert refused.value.details == {"who": "Bob"}
        (folder / "team.toml").write_text(f'{entry}storage_state = "no.json"\n')
        with pytest.raises(UsageError, match="crm is not signed in; the operator signs in once with `abp login crm`"):
            connect("crm", config="team.toml", store=store)


def test_login_page_error_names_command_for_its_app() -> None:
    for user in ("", "ann"):
        error = not_abp("the page at X has no window.abp", "", PageProblems(), sign_in=True)
        Guard(Secrets({}, user or None), name="crm", hidden=("secret.json",) if user else ()).mask_error(error)
        before = "crm asks" if user else "the page at X has no window.abp; it asks"
        assert error.message == f"{before} to sign in: the operator does that with `abp login crm`"
        assert str(error).endswith("`abp login crm` [PERMISSION_REQUIRED]") and error.args == (error.message,)


@each_row(
    ("url", "origin"),
    [
        ("HTTPS://App.Test:443/x?y", "https://app.test"),
        ("wss://app.test/abp", "https://app.test"),
        ("mcp+http://127.0.0.1:8000/mcp", "http://127.0.0.1:8000"),
        ("http://[::1]:80/", "http://[::1]"),
        ("https://Bücher.example", "https://xn--bcher-kva.example"),
        ("https://ü" + "x" * 70, None),
        ("file:///etc/passwd", None),
        ("http://", None),
        ("http://a:99999/", None),
        (None, None),
    ],
)
def test_origin_of_app_address(url: str | None, origin: str | None) -> None:
    assert origin_of(url) == origin


async def _refusing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 503 No\r\nContent-Type: text/plain\r\nContent-Length: 18\r\n\r\nWORDS-OF-PROGRAM-1")
    await writer.drain()
    writer.close()


_PROGRAM = "import sys; sys.exit('WORDS-OF-PROGRAM-1')"
#: Kinds of an app that cannot be had; ``PORT`` answers HTTP 503 to everything, ``PLACE`` is a folder.
UNREACHABLE = {
    "refused": 'url = "ws://127.0.0.1:9/HIDDEN-PATH"',
    "unknown host": 'url = "ws://HIDDEN-HOST.invalid/HIDDEN-PATH"',
    "no TLS": 'url = "wss://127.0.0.1:PORT/HIDDEN-PATH"',
    "no WebSocket": 'url = "ws://127.0.0.1:PORT/HIDDEN-PATH?a=HIDDEN-QUERY"',
    "a program that fails": f'url = "mcp+stdio:{sys.executable} PLACE/HIDDEN-PATH.py"',
    "no program": 'url = "mcp+stdio:PLACE/HIDDEN-PATH --token HIDDEN-QUERY"',
    "no MCP server": 'url = "mcp+http://127.0.0.1:PORT/HIDDEN-PATH"',
    "an MCP server that refuses": 'url = "mcp+http://127.0.0.1:9/HIDDEN-PATH"',
    "no extension": 'url = "extension:PLACE/HIDDEN-PATH"',
    "no page": 'url = "http://127.0.0.1:9/HIDDEN-PATH"',
    "no browser to attach to": 'url = "http://127.0.0.1:PORT/"\ncdp_url = "http://127.0.0.1:9/HIDDEN-PATH"',
    "no adapter": 'url = "http://127.0.0.1:PORT/"\nadapter = "HIDDEN-PATH.js"',
    "a state that is none": 'url = "http://127.0.0.1:PORT/"\nstorage_state = "HIDDEN-PATH.json"',
    "no recording": 'url = "replay:PLACE/HIDDEN-PATH"',
    "no host": 'url = "ws:///HIDDEN-PATH"',
    "no such transport": 'url = "gopher://HIDDEN-HOST/"',
}


#: One of each way to an app; for some of the others a process or a browser's driver is started.
QUICK = ("refused", "no WebSocket", "no MCP server", "no page", "no adapter", "no recording", "no host")


@pytest.mark.parametrize("kind", slow_but(UNREACHABLE, *QUICK))
async def test_server_user_cannot_see_how_app_is_reached(
    folder: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "HIDDEN-PATH.py").write_text(_PROGRAM)
    (folder / "HIDDEN-PATH.json").write_text("nonsense")
    server = await asyncio.start_server(_refusing, "127.0.0.1", 0)
    async with server:
        port = str(server.sockets[0].getsockname()[1])
        entry = UNREACHABLE[kind].replace("PORT", port).replace("PLACE", str(folder))
        (folder / "team.toml").write_text(f"[apps.crm]\n{entry}\n")
        secret = ("HIDDEN", "hidden", "127.0.0.1", port, str(folder), "WORDS-OF", "python", "gopher")
        codes = []
        for user in ("ann", None):
            caplog.clear()
            store = open_store("memory:").scoped(Scope(user=user))
            with pytest.raises(ABPError) as raised:
                await connect("crm", config="team.toml", store=store, timeout=15)
            error = raised.value
            codes.append(error.code)
            shown = f"{error} {error.args} {json.dumps(error.as_dict())}"
            found = [text for text in secret if text in shown]
            assert bool(found) is (user is None), shown
            if user is not None:
                assert "crm" in error.message and "operator" in error.message
                assert any(text in caplog.text for text in secret)  # the operator's log has the whole
        assert codes[0] == codes[1]


async def test_server_user_sees_no_address_in_call_error(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    def answer(capability: str) -> Mapping[str, object] | None:
        if capability == "away.go":
            return None
        if capability == "no.do":
            return {"success": False, "error": {"code": "NO", "message": "the app's own words"}}
        url = f"http://{address}/HIDDEN-PATH"
        file = {"mimeType": "text/plain", "size": 5, "downloadUrl": url, "filename": "a.txt"}
        return {"success": True, "data": {"file": file}}

    async with socket_app(answer) as address:
        (folder / "team.toml").write_text(f'[apps.crm]\nurl = "ws://{address}/HIDDEN-PATH"\n')
        store = open_store("memory:").scoped(Scope(user="ann"))
        async with connect("crm", config="team.toml", store=store, timeout=15) as app:
            for capability, code in (("file.get", "DOWNLOAD_FAILED"), ("away.go", "DISCONNECTED")):
                caplog.clear()
                with pytest.raises(ABPError) as raised:
                    await app.call(capability)
                shown = f"{raised.value} {json.dumps(raised.value.as_dict())}"
                assert not [text for text in ("HIDDEN", address, "127.0.0.1", "WORDS-OF") if text in shown], shown
                assert raised.value.code == code and "crm" in shown
                assert address in caplog.text or "WORDS-OF" in caplog.text
            with pytest.raises(ABPError, match=r"no\.do: the app's own words"):
                await app.call("no.do")
