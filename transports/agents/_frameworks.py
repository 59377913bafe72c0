"""Tools of an app for frameworks; each function imports its own framework."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Unpack

from .._internal.arguments import showing
from ..errors import UsageError
from ..session._session import Session
from ._tools import AppTools, ToolOptions

if TYPE_CHECKING:
    from agents import FunctionTool
    from langchain_core.tools import BaseTool
    from pydantic_ai.toolsets import AbstractToolset


@showing(ToolOptions)
def pydantic_ai_toolset(app: Session, **options: Unpack[ToolOptions]) -> AbstractToolset[object]:
    """Return the tools of ``app`` as a toolset of Pydantic AI, which follows the app's capabilities.

    Wrong arguments are a ``ModelRetry``, other errors a ``ToolFailed``. The metadata of a tool has its annotations, the
    metadata of an answer the JSON of ``abp call --json`` without ``data``. ``options`` are those of
    :class:`ToolOptions <transports.agents.ToolOptions>`.

    Raises :class:`~transports.errors.UsageError` without Pydantic AI, 2.0 or newer."""
    with _requiring_package("pydantic_ai_toolset", "pydantic-ai-slim"):
        from ._pydantic_ai import AppToolset
    return AppToolset(AppTools(app, options))


@showing(ToolOptions)
def langchain_tools(app: Session, **options: Unpack[ToolOptions]) -> list[BaseTool]:
    """Return the tools of ``app`` for LangChain and LangGraph, for asynchronous agents.

    The artifact of a tool's message is the JSON of ``abp call --json`` without ``data``; an error is a message with the
    status ``error``. Progress is sent as custom events ``abp_progress``. The list is of the app's current capabilities.
    ``options`` are those of :class:`ToolOptions <transports.agents.ToolOptions>`.

    Raises :class:`~transports.errors.UsageError` without LangChain's core, 1.0 or newer."""
    with _requiring_package("langchain_tools", "langchain-core"):
        from ._langchain import tools_of
    return tools_of(AppTools(app, options))


@showing(ToolOptions)
def openai_agents_tools(app: Session, **options: Unpack[ToolOptions]) -> list[FunctionTool]:
    """Return the tools of ``app`` for the OpenAI Agents SDK.

    A tool that the app calls destructive needs approval; one whose capability is gone is disabled. ``options`` are
    those of :class:`ToolOptions <transports.agents.ToolOptions>`.

    Raises :class:`~transports.errors.UsageError` without the OpenAI Agents SDK."""
    with _requiring_package("openai_agents_tools", "openai-agents"):
        from ._openai_agents import tools_of
    return tools_of(AppTools(app, options))


@contextmanager
def _requiring_package(function: str, package: str) -> Iterator[None]:
    """Raise :class:`~transports.errors.UsageError` with advice for an import in the block that fails."""
    try:
        yield
    except ImportError as error:
        raise UsageError(f"{function} needs {package} ({error}); install it: pip install -U {package}") from error
