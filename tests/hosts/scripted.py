"""``python -m tests.hosts.scripted FRAMEWORK SCENARIO URL``: an agent whose model follows a script, with a real app.

Each framework runs for real, with the scripted model that it brings; the packages of the models' makers speak with a
server here. Facts are printed as one JSON document; the tests outside judge them. Nothing of our test suite that needs
more than the package's own dependencies can be imported here.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from aiohttp import web

from tests.support.apps import NotingTransport
from tests.support.eventually import eventually
from transports import Session, connect
from transports.agents import langchain_tools, openai_agents_tools, pydantic_ai_toolset
from transports.memory import Call

PAGES = "<h1>Sales</h1><p>They grew.</p><h1 style='break-before: page'>Costs</h1><p>They fell.</p>"
#: A call of a tool, made of all that the model has seen.
Step: TypeAlias = tuple[str, Callable[[str], Mapping[str, object]]]


@dataclass
class Script:
    """Model that makes the calls of ``steps``, one a turn, and ends with ``answer``."""

    steps: Sequence[Step]
    answer: str = "The second page is about costs."
    #: What the model has seen at each turn, as JSON.
    seen: list[str] = field(default_factory=list)
    #: Definitions of the tools at the last turn.
    tools: list[Any] = field(default_factory=list)

    def next(self, seen: object, tools: Sequence[object]) -> tuple[str, str, dict[str, object]] | None:
        """Return id, name and arguments of the next call; ``None`` at the end of the script."""
        self.seen.append(seen if isinstance(seen, str) else json.dumps(seen, default=repr))
        self.tools = [*tools]
        turn = len(self.seen) - 1
        if turn >= len(self.steps):
            return None
        name, arguments = self.steps[turn]
        return f"call_{turn}", name, dict(arguments(self.seen[-1]))


def _uri(seen: str) -> str:
    found = re.search(r"artifact://[\w.-]+", seen)
    assert found is not None, seen
    return found[0]


REPORT: Sequence[Step] = (
    ("abp_export_pdf", lambda _: {"html": PAGES}),
    ("abp_read_artifact", lambda seen: {"id": _uri(seen), "page": 2, "picture": True}),
    ("abp_file_digest", lambda seen: {"file": _uri(seen)}),
)
FAILING: Sequence[Step] = (
    ("abp_fault_throws", lambda _: {}),
    ("abp_fault_never", lambda _: {}),
    ("abp_read_artifact", lambda _: {"id": "nothing"}),
    ("abp_export_pdf", lambda _: {}),
    ("abp_file_digest", lambda _: {"file": "/etc/hostname"}),
)
#: Names of parameters that frameworks use themselves.
NAMES = ("config", "self", "run_manager", "ctx", "name", "arguments", "tool_args")
ANNOTATED: Sequence[Step] = (("abp_echo", lambda _: dict.fromkeys(NAMES, 1)), ("abp_wipe", lambda _: {}))
HANGING: Sequence[Step] = (("abp_job_wait", lambda _: {}),)


# --- scripted models --------------------------------------------------------------------------------------------------


def of_pydantic_ai(script: Script) -> Any:
    from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    def follow(messages: Any, info: Any) -> Any:
        tools = [{"name": tool.name, "metadata": tool.metadata, "strict": tool.strict} for tool in info.function_tools]
        call = script.next(ModelMessagesTypeAdapter.dump_json(messages).decode(), tools)
        if call is None:
            return ModelResponse(parts=[TextPart(script.answer)])
        identity, name, arguments = call
        return ModelResponse(parts=[ToolCallPart(name, arguments, tool_call_id=identity)])

    return FunctionModel(follow)


def of_langchain(script: Script) -> Any:
    from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.outputs import ChatGeneration, ChatResult

    class Model(FakeMessagesListChatModel):  # type: ignore[misc]
        def bind_tools(self, tools: Sequence[Any], **_: Any) -> Any:
            script.tools = [{"name": tool.name, "metadata": tool.metadata} for tool in tools]
            return self

        def _generate(self, messages: Any, *_: Any, **__: Any) -> Any:
            seen = [
                {"type": one.type, "content": one.content, "status": getattr(one, "status", None)} for one in messages
            ]
            call = script.next(seen, script.tools)
            message = AIMessage(script.answer)
            if call is not None:
                identity, name, arguments = call
                message = AIMessage("", tool_calls=[{"id": identity, "name": name, "args": arguments}])
            return ChatResult(generations=[ChatGeneration(message=message)])

    return Model(responses=[])


def of_openai_agents(script: Script) -> Any:
    from agents import set_tracing_disabled
    from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call

    set_tracing_disabled(True)

    def follow(call: Any) -> Any:
        tools = [
            {"name": one.name, "strict": one.strict_json_schema, "approval": one.needs_approval} for one in call.tools
        ]
        made = script.next(call.input, tools)
        if made is None:
            return ModelStep(output=[assistant_message(script.answer)])
        identity, name, arguments = made
        return ModelStep(output=[function_call(name, arguments, call_id=identity)])

    return ScriptedModel([ModelStep.respond(follow)] * (len(script.steps) + 1))


@asynccontextmanager
async def _serving(script: Script, answer: Callable[[Script, Any], Any]) -> AsyncIterator[str]:
    """Serve a model's API; each request is a turn of the script."""

    async def follow(request: web.Request) -> web.Response:
        return web.json_response(answer(script, await request.json()))

    app = web.Application(client_max_size=64 << 20)
    app.router.add_post("/{path:.*}", follow)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def _chat(script: Script, request: Any) -> Any:
    call = script.next(request["messages"], request["tools"])
    message: dict[str, object] = {"role": "assistant", "content": script.answer}
    if call is not None:
        function = {"name": call[1], "arguments": json.dumps(call[2])}
        message = {"role": "assistant", "tool_calls": [{"id": call[0], "type": "function", "function": function}]}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}


def _responses(script: Script, request: Any) -> Any:
    call = script.next(request["input"], request["tools"])
    text = {"type": "output_text", "text": script.answer, "annotations": []}
    item: object = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [text]}
    if call is not None:
        identity, name, arguments = call
        made = {"call_id": identity, "name": name, "arguments": json.dumps(arguments), "status": "completed"}
        item = {"id": f"fc_{identity}", "type": "function_call", **made}
    more = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return {"id": "r", "object": "response", "created_at": 0, "model": "m", "output": [item], **more}


def _messages(script: Script, request: Any) -> Any:
    call = script.next(request["messages"], request["tools"])
    block: object = {"type": "text", "text": script.answer}
    if call is not None:
        block = {"type": "tool_use", "id": call[0], "name": call[1], "input": call[2]}
    end = {"stop_reason": "end_turn", "usage": {"input_tokens": 1, "output_tokens": 1}}
    return {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [block], **end}


def _gemini(script: Script, request: Any) -> Any:
    call = script.next(request["contents"], request["tools"][0]["functionDeclarations"])
    part: object = {"text": script.answer}
    if call is not None:
        part = {"functionCall": {"id": call[0], "name": call[1], "args": call[2]}}
    return {"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}]}


_MODELS: Mapping[str, Callable[[Script], Any]] = {
    "pydantic_ai": of_pydantic_ai,
    "langchain": of_langchain,
    "openai_agents": of_openai_agents,
}
_SERVERS: Mapping[str, tuple[Callable[[Script, Any], Any], str, str]] = {
    "openai": (_chat, "OPENAI_BASE_URL", "OPENAI_API_KEY"),
    "openai_responses": (_responses, "OPENAI_BASE_URL", "OPENAI_API_KEY"),
    "anthropic": (_messages, "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"),
    "google": (_gemini, "GOOGLE_GEMINI_BASE_URL", "GOOGLE_API_KEY"),
}


# --- scenarios --------------------------------------------------------------------------------------------------------


async def report(framework: str, url: str) -> Mapping[str, object]:
    """The example of the framework, with a scripted model: it exports a PDF, reads a page and hands the file on."""
    script = Script(REPORT)
    main = importlib.import_module(f"examples.agents.with_{framework}").main
    if framework in _MODELS:
        answer = await main(url, _MODELS[framework](script))
    else:
        respond, base, key = _SERVERS[framework]
        async with _serving(script, respond) as address:
            os.environ |= {base: address, key: "none"}
            answer = await main(url)
    return {"answer": answer, "seen": script.seen, "tools": script.tools}


async def failing(framework: str, url: str) -> Mapping[str, object]:
    """Calls that fail, each in its own way."""
    script = Script(FAILING, answer="It did not work.")
    async with connect(f"{url}?faults", store="memory:") as app:
        answer = await _RUN[framework](app, script, timeout=2.0)
        alive = (await app.call("file.list")).data is not None
    return {"answer": answer, "seen": script.seen, "alive": alive}


async def cancelled(framework: str, url: str) -> Mapping[str, object]:
    """A run that is cancelled while the app works."""
    script = Script(HANGING)
    async with connect(url, store="memory:") as app:

        async def state() -> object:
            record: Any = (await app.call("app.record")).data
            return next((call["state"] for call in record["calls"] if call["capability"] == "job.wait"), None)

        async def is_over() -> bool:
            return await state() != "running"

        await _RUN[framework](app, Script(()))  # imports the framework, which may take half a minute of a busy machine
        running = asyncio.ensure_future(_RUN[framework](app, script))
        await eventually(state)
        before = await state()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await eventually(is_over)  # the Agents SDK ends its run before the tool that it cancels
        return {"states": [before, await state()], "ended": running.cancelled(), "turns": len(script.seen)}


async def annotated(framework: str, _: str) -> Mapping[str, object]:
    """A tool that tells its progress, and one that the app calls destructive, with a way to ask before it."""
    called: dict[str, Mapping[str, object]] = {}

    async def handle(params: Mapping[str, object], call: Call) -> object:
        called[call.capability] = params
        await call.progress(progress=1, total=2, status="half")
        return {"ok": True}

    listed = [
        {"name": "echo", "annotations": {"readOnlyHint": True}},
        {"name": "wipe", "annotations": {"destructiveHint": True}},
    ]
    script = Script(ANNOTATED)
    transport = NotingTransport({"echo": handle, "wipe": handle}, list=listed)
    async with connect("memory:", transport=transport, store="memory:") as app:
        facts = await _ASKED[framework](app, script)
    return {"told": facts, "called": called, "tools": script.tools}


async def _pydantic_ai_asked(app: Session, script: Script) -> Any:
    from pydantic_ai import Agent, DeferredToolRequests

    def asked(_: object, tool: Any, __: object) -> bool:
        return bool(tool.metadata["annotations"].get("destructiveHint", False))

    toolset = pydantic_ai_toolset(app).approval_required(asked)
    output = (
        await Agent(of_pydantic_ai(script), toolsets=[toolset], output_type=[str, DeferredToolRequests]).run("go")
    ).output
    return [call.tool_name for call in output.approvals]


async def _langchain_told(app: Session, script: Script) -> Any:
    from langchain.agents import create_agent
    from langchain_core.callbacks import AsyncCallbackHandler

    told = []

    class Listener(AsyncCallbackHandler):  # type: ignore[misc]
        async def on_custom_event(self, name: str, data: Any, **_: Any) -> None:
            told.append([name, data])

    agent: Any = create_agent(of_langchain(script), langchain_tools(app))
    question = {"messages": [{"role": "user", "content": "go"}]}
    answer = await agent.ainvoke(question, config={"callbacks": [Listener()]})
    artifacts = [one.artifact["capability"] for one in answer["messages"] if getattr(one, "artifact", None)]
    return [told[0], artifacts]


async def _openai_agents_asked(app: Session, script: Script) -> Any:
    from agents import Agent, Runner

    agent = Agent(name="clerk", model=of_openai_agents(script), tools=[*openai_agents_tools(app)])
    return [one.name for one in (await Runner.run(agent, "go")).interruptions]


_ASKED: Mapping[str, Callable[[Session, Script], Awaitable[Any]]] = {
    "pydantic_ai": _pydantic_ai_asked,
    "langchain": _langchain_told,
    "openai_agents": _openai_agents_asked,
}


async def _pydantic_ai(app: Session, script: Script, **options: Any) -> str:
    from pydantic_ai import Agent

    agent = Agent(of_pydantic_ai(script), toolsets=[pydantic_ai_toolset(app, **options)])
    return str((await agent.run("go")).output)


async def _langchain(app: Session, script: Script, **options: Any) -> str:
    from langchain.agents import create_agent

    agent: Any = create_agent(of_langchain(script), langchain_tools(app, **options))
    return str((await agent.ainvoke({"messages": [{"role": "user", "content": "go"}]}))["messages"][-1].content)


async def _openai_agents(app: Session, script: Script, **options: Any) -> str:
    from agents import Agent, Runner

    agent = Agent(name="clerk", model=of_openai_agents(script), tools=[*openai_agents_tools(app, **options)])
    return str((await Runner.run(agent, "go")).final_output)


_RUN: Mapping[str, Callable[..., Awaitable[str]]] = {
    "pydantic_ai": _pydantic_ai,
    "langchain": _langchain,
    "openai_agents": _openai_agents,
}
_SCENARIOS = {"report": report, "failing": failing, "cancelled": cancelled, "annotated": annotated}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_SCENARIOS[sys.argv[2]](sys.argv[1], sys.argv[3]))))
