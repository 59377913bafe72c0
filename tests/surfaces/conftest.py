"""What the tests of the surfaces share."""

import os

import pytest


@pytest.fixture(autouse=True)
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes of a store are looked for ten times a second instead of twice, and servers end in 0.2 s instead of 1."""
    for name in ("_INTERVAL", "_LISTING_INTERVAL"):
        monkeypatch.setattr(f"transports.surfaces.shared._activity.{name}", 0.1)
    monkeypatch.setattr("transports.surfaces.mcp._http._SHUTDOWN_TIMEOUT", 0.2)


@pytest.fixture(autouse=True)
def no_certificates(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Clients over plain HTTP load no certificates, which takes each of them 20 ms. That of a bucket needs some."""
    if "bucket" not in request.fixturenames:
        monkeypatch.setenv("SSL_CERT_FILE", "")
        monkeypatch.setenv("SSL_CERT_DIR", os.devnull)
