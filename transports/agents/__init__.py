"""Tools of an app for agents: a thin function for each framework, over one session.

* :func:`openai_tools`, :func:`anthropic_tools`, :func:`google_tools` — schemas in the shape of a model's API, and the
  answers to its calls. They need no other package.
* :func:`pydantic_ai_toolset`, :func:`langchain_tools`, :func:`openai_agents_tools` — tools of a framework, which must
  be installed. It is imported when the function is called.

A call never raises an error of the kit: the model gets the error in words, with the next step. Files come as references
with a preview, and images as content; the model gives a file to a tool by its reference (docs/agents.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._internal.lazy import lazy_names

if TYPE_CHECKING:
    from ._frameworks import (
        langchain_tools as langchain_tools,
        openai_agents_tools as openai_agents_tools,
        pydantic_ai_toolset as pydantic_ai_toolset,
    )
    from ._models import (
        ModelTools as ModelTools,
        anthropic_tools as anthropic_tools,
        google_tools as google_tools,
        openai_tools as openai_tools,
    )
    from ._tools import (
        Answer as Answer,
        AppTool as AppTool,
        AppTools as AppTools,
        Attachment as Attachment,
        ToolOptions as ToolOptions,
    )
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "_frameworks": (
                "langchain_tools",
                "openai_agents_tools",
                "pydantic_ai_toolset",
            ),
            "_models": (
                "ModelTools",
                "anthropic_tools",
                "google_tools",
                "openai_tools",
            ),
            "_tools": (
                "Answer",
                "AppTool",
                "AppTools",
                "Attachment",
                "ToolOptions",
            ),
        },
    )
