"""Tools of an app for agents: a thin function for each framework, over one session.

* :func:`openai_tools`, :func:`anthropic_tools`, :func:`google_tools` — schemas in the shape of a model's API, and the
  answers to its calls. They need no other package.
* :func:`pydantic_ai_toolset`, :func:`langchain_tools`, :func:`openai_agents_tools` — tools of a framework, which must
  be installed. It is imported when the function is called.

A call never raises an error of the kit: the model gets the error in words, with the next step. Files come as references
with a preview, and images as content; the model gives a file to a tool by its reference (docs/agents.md)."""

from __future__ import annotations

from .._internal.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
