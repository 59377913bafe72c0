"""One connection to an MCP server, from the handshake to its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import httpx2
from mcp import Client
from mcp.client.session import IncomingMessage
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types import (
    Implementation,
    LoggingMessageNotification,
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ResourceUpdatedNotification,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from ...errors import ABPError, ConnectFailed, first_line, format_seconds
from ...protocol.initialize import package_version
from ...protocol.messages import Message
from ...tasks import cancel_and_wait
from .http import http_streams
from .process import Stderr, stdio_streams
from .questions import Questions
from .servers import Server, StdioServer
from .tool_repair import Aside, Streams, repair_tools

__all__ = ["Connection", "root_cause"]

logger = logging.getLogger("transports.mcp")

#: Seconds until a stream of changes that broke is opened again.
_RETRY_DELAY = 1.0


class Connection:
    """An initialized server, as long as it is reachable.

    ``lost`` is done once it is not, with the reason as text. ``emit`` gives messages to the session. ``sampling`` says
    whether the server may ask for messages of a model; ``max_bytes`` limits one message.
    """

    def __init__(
        self,
        server: Server,
        auth: httpx2.Auth | None,
        questions: Questions,
        emit: Callable[[Message], None],
        *,
        sampling: bool,
        max_bytes: int,
    ) -> None:
        self.client: Client
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.server = server
        self.max_bytes = max_bytes
        #: Large results, which the SDK does not get.
        self.aside = Aside()
        self._auth = auth
        self._questions = questions
        self._sampling = sampling
        self._emit = emit
        self._listening: dict[str, asyncio.Task[None]] = {}

    def mark_lost(self, reason: str) -> None:
        """Declare the connection lost. Only the first reason counts."""
        if not self.lost.done():
            self.lost.set_result(reason)

    @property
    def is_modern(self) -> bool:
        """Whether the server speaks 2026-07-28 or later, where changes come over streams that the client asks for."""
        return self.client.protocol_version in MODERN_PROTOCOL_VERSIONS

    @asynccontextmanager
    async def open(self, timeout: float) -> AsyncIterator[None]:
        """Start or reach the server and initialize it within ``timeout`` seconds; closed when the block ends.

        Raises :class:`~transports.errors.ConnectFailed`, with the end of the server's stderr in its message.
        """
        stderr = Stderr(self.server) if isinstance(self.server, StdioServer) else None
        streams: Streams
        if isinstance(self.server, StdioServer):
            assert stderr is not None
            streams = stdio_streams(self.server, stderr, max_bytes=self.max_bytes, on_exit=self.mark_lost)
        else:
            streams = http_streams(self.server, self._auth, self.aside, max_bytes=self.max_bytes)
        self.client = Client(
            repair_tools(streams, self.aside),
            elicitation_callback=self._questions.elicit,
            sampling_callback=self._questions.sample if self._sampling else None,
            message_handler=self._on_message,
            client_info=Implementation(name="abp-transports", version=package_version()),
            log_level="info",
            cache=None,
        )
        async with contextlib.AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(timeout):
                    await stack.enter_async_context(self.client)
            except (
                MCPError,
                OSError,
                RuntimeError,
                ValidationError,
                ABPError,
                httpx2.HTTPError,
                TimeoutError,
            ) as error:
                raise self._connect_error(error, timeout, stderr.summary() if stderr else "") from None
            except ExceptionGroup as group:
                raise self._connect_error(root_cause(group), timeout, "") from None
            stack.push_async_callback(lambda: cancel_and_wait(self._listening.values()))
            self._listen_to_lists()
            yield

    def _connect_error(self, error: BaseException, timeout: float, stderr: str) -> ABPError:
        if isinstance(error, ABPError):
            return error
        if isinstance(error, TimeoutError):
            within = f"within {format_seconds(timeout)}"
            return ConnectFailed(f"{self.server} did not answer {within}{stderr}; is it an MCP server?")
        if self.lost.done():
            return ConnectFailed(f"{self.lost.result()}; it must speak MCP over stdin and stdout")
        reason = first_line(self.server.redact(str(error)))[:200] or type(error).__name__
        if isinstance(error, ValidationError):
            reason = "its greeting is not what MCP says"
        if isinstance(error, httpx2.ConnectError):
            reason = f"{reason}; start the server or correct the address"
        return ConnectFailed(f"{self.server} cannot be connected: {reason}{stderr}")

    # --- changes ------------------------------------------------------------------------------------------------------

    async def _on_message(self, message: IncomingMessage) -> None:
        match message:
            case ToolListChangedNotification():
                self._emit(Message("capabilities/changed", {}))
            case ResourceUpdatedNotification():
                self._notify("notifications/resources/updated", {"uri": str(message.params.uri)})
            case ResourceListChangedNotification():
                self._notify("notifications/resources/list_changed", None)
            case PromptListChangedNotification():
                self._notify("notifications/prompts/list_changed", None)
            case LoggingMessageNotification():
                params = message.params.model_dump(by_alias=True, mode="json", exclude_none=True)
                params.pop("_meta", None)
                self._notify("notifications/message", params)
            case _:
                pass  # progress goes to its call

    def _notify(self, event: str, data: object) -> None:
        self._emit(Message("notification", {"event": event, "data": data}))

    def _listen_to_lists(self) -> None:
        able = self.client.server_capabilities
        if self.is_modern and (able.tools or able.resources):
            opened = self._listen("", (), bool(able.tools), bool(able.resources))
            opened.add_done_callback(lambda done: done.cancelled() or done.exception())  # a server may have no news

    async def listen(self, uri: str) -> None:
        """Subscribe to the changes of one resource. Raises :class:`mcp.MCPError` if the server does not report them."""
        opened = self._listen(uri, (uri,), False, False)
        try:
            await asyncio.shield(opened)
        except BaseException:
            await self.stop_listening(uri)
            raise

    async def stop_listening(self, uri: str) -> None:
        """End the subscription to one resource."""
        if task := self._listening.pop(uri, None):
            await cancel_and_wait((task,))

    def _listen(self, key: str, uris: Iterable[str], tools: bool, resources: bool) -> asyncio.Future[None]:
        """Keep a stream of changes open until :meth:`stop_listening`; the future is done once it is first open."""
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def listening() -> None:
            while not self.lost.done():
                try:
                    async with self.client.listen(
                        tools_list_changed=tools, resources_list_changed=resources, resource_subscriptions=tuple(uris)
                    ) as changes:
                        if not opened.done():
                            opened.set_result(None)
                        async for _ in changes:  # `_on_message` gets them too, as in the older protocol
                            pass
                except MCPError as error:
                    logger.info("%s tells of no changes: %s", self.server, error.error.message)
                    if not opened.done():
                        opened.set_exception(error)
                    return
                except SubscriptionLost:
                    pass
                await asyncio.sleep(_RETRY_DELAY)

        if key not in self._listening:
            self._listening[key] = asyncio.ensure_future(listening())
        else:
            opened.set_result(None)
        return opened


def root_cause(error: BaseException) -> BaseException:
    """Return the first error inside nested exception groups, or the error itself."""
    inner = error
    while isinstance(inner, BaseExceptionGroup):
        inner = inner.exceptions[0]
    return inner
