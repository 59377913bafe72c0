"""The environment: every variable, and what is said of a bad value."""

import math
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.apps import answering, hang
from tests.support.rows import each_row
from transports import (
    CallTimeout,
    LocalStore,
    MemoryTransport,
    NoneStore,
    PlaywrightTransport,
    UsageError,
    connect,
)
from transports.errors import StoreFull, TooLarge
from transports.session._settings import Settings
from transports.testing import Call
from webapp_fixture import serve


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("ABP_")]:
        monkeypatch.delenv(name)


@pytest.mark.requirement("R6-3i", "R6-10h", "R5-5d", "R0-10b")
def test_settings_defaults_match_bridge(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings.load()
    assert (settings.output_dir, settings.store, settings.headless) == (None, None, True)
    assert settings.browser_timeout == 30_000
    assert settings.max_artifact_bytes == 1 << 30
    assert not settings.allow_private_addresses
    store = connect("memory:", transport=MemoryTransport({})).store
    assert isinstance(store, LocalStore)
    assert store.root == Path(tempfile.gettempdir()) / "abp-mcp-bridge"
    for name in ("ABP_OUTPUT_DIR", "ABP_CALL_TIMEOUT", "ABP_STORE", "ABP_HEADLESS"):
        monkeypatch.setenv(name, "")
    assert Settings.load() == Settings() and Settings.load().call_timeout == 60_000


@pytest.mark.requirement("R6-10h", "R0-10a")
@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("ABP_OUTPUT_DIR", "/somewhere/out", Path("/somewhere/out")),
        ("ABP_HEADLESS", "false", False),
        ("ABP_HEADLESS", "0", False),
        ("ABP_BROWSER_TIMEOUT", "1500", 1500),
        ("ABP_CALL_TIMEOUT", "250.5", 250.5),
        ("ABP_DOWNLOAD_TIMEOUT", "9000", 9000),
        ("ABP_LOG_LEVEL", "debug", "DEBUG"),
        ("ABP_LOG_LEVEL", "warn", "WARN"),
        ("ABP_MAX_ARTIFACT_BYTES", "4096", 4096),
        ("ABP_MAX_SESSION_BYTES", "8192", 8192),
        ("ABP_MIN_FREE_DISK", "0", 0),
        ("ABP_ALLOW_PRIVATE_ADDRESSES", "yes", True),
        ("ABP_ACCEPT_COMPRESSION", "yes", True),
        ("ABP_STORE", "none:", "none:"),
    ],
)
def test_each_abp_variable_sets_its_setting(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, value: object
) -> None:
    monkeypatch.setenv(name, text)
    assert getattr(Settings.load(), name.removeprefix("ABP_").lower()) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("ABP_HEADLESS", "maybe"), ("ABP_DOWNLOAD_TIMEOUT", "soon"), ("ABP_LOG_LEVEL", "loud")),
        ("ABP_DURABILITY", "cloud"),
        *(("ABP_MAX_ARTIFACT_BYTES", "0"), ("ABP_MAX_ARTIFACT_BYTES", "1.5"), ("ABP_MAX_SESSION_BYTES", "0")),
        *(("ABP_MIN_FREE_DISK", "-1"), ("ABP_ALLOW_PRIVATE_ADDRESSES", "2")),
        *(("ABP_STORE", "s4://bucket"), ("ABP_OUTPUT_DIR", "s3://KEY:SECRET@bucket")),
    ],
)
def test_invalid_value_error_names_its_variable(monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(UsageError) as caught:
        connect("memory:", transport=MemoryTransport({}))
    assert caught.value.message.startswith(f"{name}: ") and "SECRET" not in caught.value.message


# --- what connect makes of them ---------------------------------------------------------------------------------------


GIVING = {"give": answering({"file": {"content": b"12345", "mimeType": "text/plain", "encoding": "base64"}})}


async def stored(**options: Path | str) -> Path:
    async with connect("memory:", transport=MemoryTransport(GIVING), **options) as app:  # type: ignore[arg-type]
        result = await app.call("give")
    return Path(result.artifacts["file"].path or "").parent


@pytest.mark.requirement("R0-10a", "R0-10b", "R0-10c", "R0-12b", "R2-5.2g")
async def test_store_setting_overrides_folder_and_argument_overrides_both(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ABP_OUTPUT_DIR", str(tmp_path / "a"))
    assert await stored() == tmp_path / "a"
    monkeypatch.setenv("ABP_STORE", (tmp_path / "b").as_uri())
    assert await stored() == tmp_path / "b"
    assert await stored(store=tmp_path / "c") == tmp_path / "c"
    monkeypatch.setenv("ABP_STORE", "none:")
    assert isinstance(connect("memory:", transport=MemoryTransport({})).store, NoneStore)
    with pytest.raises(UsageError) as caught:
        connect("memory:", transport=MemoryTransport({}), store="s4://bucket")
    assert "ABP_STORE" not in caught.value.message
    monkeypatch.setenv("ABP_MAX_ARTIFACT_BYTES", "4")
    with pytest.raises(TooLarge, match="limit of 4 bytes"):
        await stored(store=tmp_path)
    monkeypatch.setenv("ABP_CALL_TIMEOUT", "30")
    async with connect("memory:", transport=MemoryTransport({"hang": hang}), store=tmp_path) as app:
        with pytest.raises(CallTimeout, match=r"hang: no answer within 0\.03 s"):
            await app.call("hang")


async def test_session_total_size_is_limited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ABP_MAX_SESSION_BYTES", "12")

    async def give_text(params: Any, call: Call) -> object:
        return {"file": {"content": params["text"].encode(), "mimeType": "text/plain"}}

    for retention in ({}, {"ABP_RETENTION_MAX_SESSION_BYTES": "1MB", "ABP_RETENTION_CLEANUP_STRATEGY": "none"}):
        with monkeypatch.context() as patch:
            for name, text in retention.items():
                patch.setenv(name, text)
            app = connect("memory:", transport=MemoryTransport({"give": give_text}), store=tmp_path)
        async with app:
            for text in ("first", "other"):
                assert (await app.call("give", {"text": text})).artifacts["file"].size_bytes == 5
            with pytest.raises(StoreFull, match="ABP_MAX_SESSION_BYTES"):
                await app.call("give", {"text": "third"})
            assert len(await app.store.list()) == 2
    monkeypatch.setenv("ABP_MIN_FREE_DISK", str(1 << 60))
    with pytest.raises(StoreFull, match="ABP_MIN_FREE_DISK"):
        await stored(store=tmp_path)


async def test_websocket_connect_accepts_infinite_timeout(tmp_path: Path) -> None:
    async with serve() as fixture, connect(fixture.ws_url, timeout=math.inf, store=tmp_path) as app:
        assert (await app.call("file.list")).data is not None


_ADDRESS = "give the app's address"


@each_row(
    ("target", "message"),
    [
        ("", _ADDRESS),
        ("example.org", _ADDRESS),
        ("ftp://u:hunter2@h/x", _ADDRESS),
        ("http://", _ADDRESS),
        ("http://[", _ADDRESS),
        ("javascript:1", "did you mean http://javascript:1?"),
        ("u:hunter2@h:80/", _ADDRESS),
        ("crm\0", _ADDRESS),
        ("x" * 5000, _ADDRESS),
        ("~nobody-has-this-home/x", _ADDRESS),
        ("localhost:8000", "'localhost:8000' is not a target; did you mean http://localhost:8000?"),
        ("127.0.0.1:8000/app?token=hunter2#y", "did you mean http://127.0.0.1:8000/app?"),
        ("localhost", "did you mean http://localhost?"),
        ("/srv/my app.html", "a page in a file has to be served"),
    ],
)
def test_invalid_target_error_gives_hint_and_no_password(target: str, message: str) -> None:
    with pytest.raises(UsageError, match="is not a target") as caught:
        connect(target)
    assert message in caught.value.message
    assert "hunter2" not in caught.value.message


def test_scheme_chooses_transport_and_another_one_is_rejected() -> None:
    session = connect("http://127.0.0.1:1/")
    assert isinstance(session.transport, PlaywrightTransport) and session.transport.url == "http://127.0.0.1:1/"
    for address, transport, message in (
        ("http://h/", "carrier-pigeon", "unknown transport 'carrier-pigeon' for http://; use 'playwright'"),
        ("http://h/", "websockets", "; ws:// addresses need no transport="),
        ("http://h/", "websocket", "unknown transport 'websocket' for http://; use"),
        ("ws://h/", "playwright", "unknown transport 'playwright' for ws://; use"),
    ):
        with pytest.raises(UsageError) as caught:
            connect(address, transport=transport)
        assert message in caught.value.message
