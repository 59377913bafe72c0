"""A server behind a reverse proxy: its links, its names, and headers that nobody believes."""

from pathlib import Path

import pytest

from tests.support.web_client import put_artifact, running
from transports.artifacts import LocalStore
from transports.errors import UsageError
from transports.surfaces.web._artifacts import make_link
from transports.surfaces.web._options import Options

PUBLIC = "https://files.example/abp"


async def test_links_begin_with_the_public_address_and_only_its_name_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("ABP_SERVE_KEY", "k" * 32)
    store = LocalStore(tmp_path / "out")
    ref = await put_artifact(store)
    async with running(store, {}, public_url=f"{PUBLIC}/") as web:
        link = web.served.link(ref)
        assert web.served.page == f"{PUBLIC}/#token={web.token}"
        assert link.startswith(f"{PUBLIC}/artifacts/{ref.id}?link=")
        for host in ("files.example", web.netloc):
            made = await web.post(f"/artifacts/{ref.id}/link", headers={"Host": host})
            assert made.json["url"].startswith(f"{PUBLIC}/artifacts/{ref.id}?link=")
        assert (await make_link(store, ref.id, "1h", None))[0].startswith(f"{PUBLIC}/artifacts/")
        assert (await web.get(link.removeprefix(PUBLIC), token=False)).body == b"0123456789"
        # a proxy takes its part of the path away, and passes the name on or puts another in its place
        for host, origin, forwarded, status in (
            ("files.example", None, None, 200),
            ("files.example", "https://files.example", None, 200),
            (web.netloc, "https://files.example", None, 200),
            ("other.example", None, None, 421),
            ("other.example", None, "files.example", 421),
            ("files.example", "https://other.example", None, 403),
        ):
            headers = {"Host": host}
            headers |= {"Origin": origin} if origin else {}
            headers |= {"X-Forwarded-Host": forwarded} if forwarded else {}
            assert (await web.get("/healthz", headers=headers)).status == status, (host, origin)
        for host, secure in (("files.example", True), (web.netloc, False)):
            answer = await web.post("/login", {"token": web.token}, headers={"Host": host})
            assert ("Secure" in answer.headers["set-cookie"]) is secure


def test_a_public_address_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABP_SERVE_PUBLIC_URL", "files.example")
    with pytest.raises(UsageError, match=r"ABP_SERVE_PUBLIC_URL: 'files\.example' is not the address of a server"):
        Options.load()
