"""Browsers, their pages, and the transports that drive an app in a page.

* :mod:`.process` — find, start, attach to and end a browser.
* :mod:`.page` — the agent script in a page, and the channel to it.
* :mod:`.transfer` — content between a page and files: downloads, uploads.
* :mod:`.evidence` — recordings of a call: trace, video, HAR, console, screenshot.
* :mod:`._effects` — side effects of an app: dialogs, prints, downloads, windows.
* :mod:`._source` — the source of a session's page: browser, profile, context, the caller's own page.
* :mod:`._transport` — the base of transports that drive a page, with reconnection; :mod:`._top_page` — the base of
  those whose app is the page itself.
* :mod:`._tools` — HTML to PDF, screenshots; :mod:`._preflight` — a check for a listener before a browser is started.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from ._effects import PageEffects as PageEffects
    from ._preflight import require_listener as require_listener
    from ._source import (
        PageOptions as PageOptions,
        PageSource as PageSource,
        StorageState as StorageState,
        close_quietly as close_quietly,
    )
    from ._tools import (
        NO_WEBRTC as NO_WEBRTC,
        PictureBrowser as PictureBrowser,
        screenshot_of_url as screenshot_of_url,
    )
    from ._top_page import PageProtocol as PageProtocol, TopPageTransport as TopPageTransport
    from ._transport import PageTransport as PageTransport, ServerAddress as ServerAddress, sender_of as sender_of
    from .evidence._kinds import (
        KINDS as KINDS,
        MAX_CHARS as MAX_CHARS,
        EvidenceFile as EvidenceFile,
        EvidenceKind as EvidenceKind,
        TimedLines as TimedLines,
    )
    from .evidence._recording import (
        CallEvidence as CallEvidence,
        HasPage as HasPage,
        PageEvidence as PageEvidence,
        find_ffmpeg as find_ffmpeg,
        no_ffmpeg as no_ffmpeg,
        page_of as page_of,
    )
    from .page._agent import Document as Document, PageAgent as PageAgent
    from .page._channel import (
        A4_HEIGHT as A4_HEIGHT,
        A4_WIDTH as A4_WIDTH,
        listen as listen,
        listener as listener,
    )
    from .page._problems import (
        asks_to_sign_in as asks_to_sign_in,
        explain_load_failure as explain_load_failure,
        not_abp as not_abp,
        now_at as now_at,
        read_problems as read_problems,
        same_document as same_document,
        shown_address as shown_address,
        sign_in_advice as sign_in_advice,
    )
    from .page._received import ViewMessage as ViewMessage
    from .page._scripts import Adapter as Adapter, load_script as load_script, read_adapter as read_adapter
    from .page._syncpage import PageRunner as PageRunner, to_async as to_async
    from .process._browser_process import driver_ahead as driver_ahead
    from .process._extension import (
        EXTENSION_PAGE as EXTENSION_PAGE,
        extension_folder as extension_folder,
        extension_id as extension_id,
    )
    from .process._find import (
        HOW_TO_INSTALL as HOW_TO_INSTALL,
        find_browser as find_browser,
        find_running as find_running,
    )
    from .process._launch import Browser as Browser, BrowserLender as BrowserLender
    from .process._processes import kill as kill, process_tree as process_tree
    from .process._runfolder import short_folder as short_folder
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "_effects": ("PageEffects",),
            "_preflight": ("require_listener",),
            "_source": (
                "PageOptions",
                "PageSource",
                "StorageState",
                "close_quietly",
            ),
            "_tools": ("NO_WEBRTC", "PictureBrowser", "screenshot_of_url"),
            "_top_page": (
                "PageProtocol",
                "TopPageTransport",
            ),
            "_transport": (
                "PageTransport",
                "ServerAddress",
                "sender_of",
            ),
            "evidence._kinds": (
                "EvidenceFile",
                "EvidenceKind",
                "KINDS",
                "MAX_CHARS",
                "TimedLines",
            ),
            "evidence._recording": (
                "CallEvidence",
                "HasPage",
                "PageEvidence",
                "find_ffmpeg",
                "no_ffmpeg",
                "page_of",
            ),
            "page._agent": (
                "Document",
                "PageAgent",
            ),
            "page._channel": (
                "A4_HEIGHT",
                "A4_WIDTH",
                "listen",
                "listener",
            ),
            "page._problems": (
                "asks_to_sign_in",
                "explain_load_failure",
                "not_abp",
                "now_at",
                "read_problems",
                "same_document",
                "shown_address",
                "sign_in_advice",
            ),
            "page._received": ("ViewMessage",),
            "page._scripts": (
                "Adapter",
                "load_script",
                "read_adapter",
            ),
            "page._syncpage": (
                "PageRunner",
                "to_async",
            ),
            "process._browser_process": ("driver_ahead",),
            "process._extension": ("EXTENSION_PAGE", "extension_folder", "extension_id"),
            "process._find": (
                "HOW_TO_INSTALL",
                "find_browser",
                "find_running",
            ),
            "process._launch": (
                "Browser",
                "BrowserLender",
            ),
            "process._processes": (
                "kill",
                "process_tree",
            ),
            "process._runfolder": ("short_folder",),
        },
    )
