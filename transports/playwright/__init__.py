"""Apps and WebMCP tools in a page of a real browser.

* :mod:`._transport` — the transports of a page; :mod:`._page_transport` — the base of all transports that drive a
  page, with reconnection.
* :mod:`._find`, :mod:`._browser`, :mod:`._process` — find, start, attach to and end a browser; :mod:`._source` — where
  a session's page comes from: browser, profile, context, the caller's own page.
* :mod:`._agent`, :mod:`._channels` — the agent script in a page (``js/``), and the channel to it.
* :mod:`._content`, :mod:`._uploads`, :mod:`._downloads` — content between a page and files.
* :mod:`._effects` — side effects of an app: dialogs, prints, downloads, windows.
* :mod:`._evidence` — recordings of a call: trace, video, HAR, console, screenshot.
* :mod:`._page_tools` — HTML to PDF, screenshots; :mod:`._diagnosis` — why a page did not load or is no app.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._internal.lazy import lazy_names

if TYPE_CHECKING:
    from ._agent import Document as Document, PageAgent as PageAgent
    from ._browser import Browser as Browser, BrowserLender as BrowserLender
    from ._channel import A4_HEIGHT as A4_HEIGHT, A4_WIDTH as A4_WIDTH, listen as listen, listener as listener
    from ._diagnosis import (
        asks_to_sign_in as asks_to_sign_in,
        explain_load_failure as explain_load_failure,
        not_abp as not_abp,
        now_at as now_at,
        read_problems as read_problems,
        same_document as same_document,
        shown_address as shown_address,
        sign_in_advice as sign_in_advice,
    )
    from ._effects import PageEffects as PageEffects
    from ._evidence import (
        CallEvidence as CallEvidence,
        HasPage as HasPage,
        PageEvidence as PageEvidence,
        find_ffmpeg as find_ffmpeg,
        no_ffmpeg as no_ffmpeg,
        page_of as page_of,
    )
    from ._evidence_kinds import (
        KINDS as KINDS,
        MAX_CHARS as MAX_CHARS,
        EvidenceFile as EvidenceFile,
        EvidenceKind as EvidenceKind,
        TimedLines as TimedLines,
    )
    from ._extension import (
        EXTENSION_PAGE as EXTENSION_PAGE,
        extension_folder as extension_folder,
        extension_id as extension_id,
    )
    from ._find import HOW_TO_INSTALL as HOW_TO_INSTALL, find_browser as find_browser, find_running as find_running
    from ._page_tools import (
        NO_WEBRTC as NO_WEBRTC,
        PictureBrowser as PictureBrowser,
        screenshot_of_url as screenshot_of_url,
    )
    from ._page_transport import PageTransport as PageTransport, ServerAddress as ServerAddress, sender_of as sender_of
    from ._preflight import require_listener as require_listener
    from ._process import driver_ahead as driver_ahead
    from ._process_tree import kill as kill, process_tree as process_tree
    from ._received import ViewMessage as ViewMessage
    from ._run_folder import short_folder as short_folder
    from ._scripts import Adapter as Adapter, load_script as load_script, read_adapter as read_adapter
    from ._source import (
        PageOptions as PageOptions,
        PageSource as PageSource,
        StorageState as StorageState,
        close_quietly as close_quietly,
    )
    from ._sync_page import PageRunner as PageRunner, to_async as to_async
    from ._transport import (
        PageProtocol as PageProtocol,
        PlaywrightTransport as PlaywrightTransport,
        TopPageTransport as TopPageTransport,
        WebMcpTransport as WebMcpTransport,
    )
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "_agent": (
                "Document",
                "PageAgent",
            ),
            "_browser": (
                "Browser",
                "BrowserLender",
            ),
            "_channel": (
                "A4_HEIGHT",
                "A4_WIDTH",
                "listen",
                "listener",
            ),
            "_diagnosis": (
                "asks_to_sign_in",
                "explain_load_failure",
                "not_abp",
                "now_at",
                "read_problems",
                "same_document",
                "shown_address",
                "sign_in_advice",
            ),
            "_effects": ("PageEffects",),
            "_evidence": (
                "CallEvidence",
                "HasPage",
                "PageEvidence",
                "find_ffmpeg",
                "no_ffmpeg",
                "page_of",
            ),
            "_evidence_kinds": (
                "EvidenceFile",
                "EvidenceKind",
                "KINDS",
                "MAX_CHARS",
                "TimedLines",
            ),
            "_extension": (
                "EXTENSION_PAGE",
                "extension_folder",
                "extension_id",
            ),
            "_find": (
                "HOW_TO_INSTALL",
                "find_browser",
                "find_running",
            ),
            "_page_tools": (
                "NO_WEBRTC",
                "PictureBrowser",
                "screenshot_of_url",
            ),
            "_page_transport": (
                "PageTransport",
                "ServerAddress",
                "sender_of",
            ),
            "_preflight": ("require_listener",),
            "_process": ("driver_ahead",),
            "_process_tree": (
                "kill",
                "process_tree",
            ),
            "_received": ("ViewMessage",),
            "_run_folder": ("short_folder",),
            "_scripts": (
                "Adapter",
                "load_script",
                "read_adapter",
            ),
            "_source": (
                "PageOptions",
                "PageSource",
                "StorageState",
                "close_quietly",
            ),
            "_sync_page": (
                "PageRunner",
                "to_async",
            ),
            "_transport": (
                "PageProtocol",
                "TopPageTransport",
                "PlaywrightTransport",
                "WebMcpTransport",
            ),
        },
    )
