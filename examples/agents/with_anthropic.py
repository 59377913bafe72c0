"""A loop around Anthropic's Messages that uses an app: python examples/agents/with_anthropic.py http://127.0.0.1:8000/

pip install abp-transports anthropic, and an API key."""

import asyncio
import sys
from typing import Any

from anthropic import AsyncAnthropic

from transports import connect
from transports.agents import anthropic_tools

TASK = "Print a report of two pages, Sales and Costs. What is on its second page, and what is the SHA-256 of the file?"


async def main(url: str, model: str = "claude-sonnet-4-5") -> str:
    client: Any = AsyncAnthropic()
    messages: list[Any] = [{"role": "user", "content": TASK}]
    async with connect(url) as app:
        tools = anthropic_tools(app)
        while True:
            answer = await client.messages.create(
                model=model,
                max_tokens=4096,
                messages=messages,
                tools=tools.definitions,
            )
            calls = [block for block in answer.content if block.type == "tool_use"]
            if not calls:
                return "".join(block.text for block in answer.content if block.type == "text")
            results = [await tools.answer(call) for call in calls]
            messages += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": results}]


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    print(asyncio.run(main(*sys.argv[1:])))
