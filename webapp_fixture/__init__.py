"""Workbench, the reference ABP web app: a small real app for people, and for programs through ``window.abp``, over
WebSocket, or embedded in an iframe.

    from webapp_fixture import serve

    async with serve() as fixture:
        print(fixture.url, fixture.ws_url, fixture.embed_url)

The app has named faults: ``fault.*`` and ``wire.*`` capabilities, ``/faults/`` addresses, and options such as
``?late=500``. With these a test makes a client meet every misbehaviour. ``abp fixture`` serves the app until Ctrl-C.
"""

from webapp_fixture.conversation import Conversation
from webapp_fixture.definitions import capabilities, manifest
from webapp_fixture.generate import block, digest, generate
from webapp_fixture.server import Fixture, serve
from webapp_fixture.state import RequestRecord

__all__ = [
    "Conversation",
    "Fixture",
    "RequestRecord",
    "block",
    "capabilities",
    "digest",
    "generate",
    "manifest",
    "serve",
]
