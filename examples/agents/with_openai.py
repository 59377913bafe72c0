"""A loop around OpenAI's Chat Completions that uses an app: python examples/agents/with_openai.py http://127.0.0.1:8000/

pip install abp-transports openai, and an API key. Most makers of models have this API, too (OPENAI_BASE_URL)."""

import asyncio
import sys
from typing import Any

from openai import AsyncOpenAI

from transports import connect
from transports.agents import openai_tools

TASK = "Print a report of two pages, Sales and Costs. What is on its second page, and what is the SHA-256 of the file?"


async def main(url: str, model: str = "gpt-5") -> str:
    client: Any = AsyncOpenAI()
    messages: list[Any] = [{"role": "user", "content": TASK}]
    async with connect(url) as app:
        tools = openai_tools(app, strict=True)
        while True:
            answer = await client.chat.completions.create(model=model, messages=messages, tools=tools.definitions)
            message = answer.choices[0].message
            if not message.tool_calls:
                return str(message.content)
            messages += [message, *[await tools.answer(call) for call in message.tool_calls]]


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    print(asyncio.run(main(*sys.argv[1:])))
