"""Addresses of stores."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.support.object_server import environment
from transports.artifacts import LocalStore, MemoryStore, NoneStore, open_store
from transports.errors import StoreUnavailable, UsageError


@pytest.mark.parametrize("folder", ["plain", "with space", "100%25 #1?", "ünï", "a:b"])
def test_open_store_takes_folders_and_urls(folder: str, tmp_path: Path) -> None:
    place = tmp_path / folder
    for address in (place, str(place), place.as_uri()):
        store = open_store(address, max_bytes=5)
        assert isinstance(store, LocalStore) and store.root == place and store.max_bytes == 5
        again = open_store(store.url)
        assert isinstance(again, LocalStore) and again.root == place and again.url == store.url
    assert not place.exists()


def test_open_store_defaults_and_rejections(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    default = open_store()
    assert (
        isinstance(default, LocalStore) and default.root == tmp_path / "abp-mcp-bridge" and default.max_bytes == 1 << 30
    )
    for url, kind in (("none:", NoneStore), ("memory:", MemoryStore)):
        assert isinstance(open_store(url), kind) and open_store(url).url == url
    monkeypatch.chdir(tmp_path)
    relative = open_store("sub/out")
    assert isinstance(relative, LocalStore) and relative.root == tmp_path / "sub/out"
    secret = "hunter2"
    for bad in (
        *(f"s3://user:{secret}@bucket/x?sig={secret}", "s3://", "s3://bucket/x?sig=1", "s3://bucket/a/../b", "s4://b"),
        *(
            "ftp:x",
            "file:relative",
            "file://host/x",
            "file:///x?y",
            "",
            "a\0b",
            "none:x",
            "memory:x",
            "s3://[",
            "file://[",
        ),
    ):
        with pytest.raises(UsageError, match=r"file:///.*none:") as caught:
            open_store(bad)
        assert secret not in caught.value.message
    with pytest.raises(UsageError, match=r"max_bytes must not be negative \(it is -1\)"):
        open_store("memory:", max_bytes=-1)
    assert list(tmp_path.iterdir()) == []


def test_folder_whose_name_is_not_utf8_is_rejected(tmp_path: Path) -> None:
    for address in (tmp_path / os.fsdecode(b"caf\xe9"), f"{tmp_path.as_uri()}/caf%E9"):
        with pytest.raises(UsageError, match=r"the artifact folder '.*' has a name that is not UTF-8; choose another"):
            open_store(address)


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="needs a locale of POSIX: Windows has file names in Unicode")
def test_name_that_locale_cannot_spell_is_rejected_by_folders_only(tmp_path: Path) -> None:
    code = r"""
import sys
from transports.sync import open_store
for url in ("memory:", sys.argv[1]):
    try:
        print(ascii(open_store(url).put_bytes(b"x", filename="\u2192.txt").filename))
    except Exception as error:
        print(error)
"""
    locale = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path], env={**os.environ, **locale}, capture_output=True, text=True, timeout=60
    )
    in_memory, in_folder = done.stdout.splitlines()
    assert in_memory == r"'\u2192.txt'"
    assert (
        r"the name '\u2192.txt' cannot be written in this locale, whose encoding is ascii; set PYTHONUTF8=1"
        in in_folder
    )


def test_open_store_takes_other_clouds() -> None:
    pytest.importorskip("obstore")
    azure = open_store("abfs://container@account.dfs.core.windows.net/x")
    assert repr(azure).startswith("ObjectStore(") and azure.url.startswith("abfs://container@account")
    with pytest.raises(UsageError, match="Account"):
        open_store("az://container/x")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AWS_ENDPOINT_URL", "localhost:9000"),
        ("AWS_ENDPOINT_URL", "http://localhost:9000\n"),
        ("AWS_ENDPOINT_URL", "http://localhost:99999"),
        ("AWS_ENDPOINT_URL_S3", ""),
        ("AWS_ENDPOINT", "ftp://localhost"),
        ("AWS_ENDPOINT_URL", "http://192.0.2.1:9000"),
        ("AWS_ACCESS_KEY_ID", "a-key\n"),
        ("AWS_SESSION_TOKEN", "a-token\r\n"),
        ("AWS_REGION", "us-east-1 "),
    ],
)
def test_unusable_variable_of_bucket_is_named(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("obstore")
    monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=f"^{name} ") as unusable:
        open_store("s3://bucket/prefix")
    assert value.strip() not in unusable.value.message or not value


@pytest.mark.parametrize(
    "endpoints",
    [
        {"AWS_ENDPOINT_URL_S3": "http://localhost:9000", "AWS_ENDPOINT_URL": ""},
        {"AWS_ENDPOINT_URL": "HTTP://localhost:9000"},
    ],
    ids=str,
)
def test_usable_endpoint_of_bucket_is_taken(endpoints: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("obstore")
    for name, value in endpoints.items():
        monkeypatch.setenv(name, value)
    assert repr(open_store("s3://bucket/prefix")).startswith("ObjectStore(")


@pytest.mark.parametrize(
    ("host", "status", "code", "message"),
    [
        ("127.0.0.1", 403, "RequestTimeTooSkewed", "AWS_REGION and the clock"),
        ("127.0.0.1", 400, "AuthorizationHeaderMalformed", "AWS_REGION and the clock"),
        ("127.0.0.1", 301, "PermanentRedirect", "AWS_REGION and the clock"),
        # This address of every machine does not count as a loopback address: HTTP to it must be allowed.
        ("0.0.0.0", 404, "NoSuchBucket", "the bucket of s3://bucket/prefix does not exist"),
    ],
)
async def test_refusal_of_bucket_says_what_to_correct(
    host: str, status: int, code: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("obstore")

    async def refuse(_: web.Request) -> web.Response:
        return web.Response(status=status, text=f"<Error><Code>{code}</Code></Error>", content_type="application/xml")

    app = web.Application()
    app.router.add_route("*", "/{key:.*}", refuse)
    async with TestServer(app, host=host) as server:
        for name, value in environment(f"http://{host}:{server.port}").items():
            monkeypatch.setenv(name, value)
        if host == "0.0.0.0":
            monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
        async with open_store("s3://bucket/prefix") as store:
            with pytest.raises(StoreUnavailable, match=message) as refused:
                await store.put_bytes(b"x")
    assert refused.value.details["store"] == "s3://bucket/prefix"
    assert code == "NoSuchBucket" or refused.value.details["reason"] == code


async def test_missing_credentials_of_bucket_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("obstore")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    async with TestServer(web.Application()) as service_without_credentials:
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", str(service_without_credentials.make_url("")).rstrip("/"))
        async with open_store("s3://bucket/prefix") as store:
            with pytest.raises(StoreUnavailable, match="no credentials were found; set AWS_ACCESS_KEY_ID"):
                await store.put_bytes(b"x")
