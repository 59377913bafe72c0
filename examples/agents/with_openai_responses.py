"""A loop around OpenAI's Responses that uses an app: python examples/agents/with_openai_responses.py http://127.0.0.1:8000/

pip install abp-transports openai, and an API key. The model sees images and pages of PDFs as pictures."""

import asyncio
import sys
from typing import Any

from openai import AsyncOpenAI

from transports import connect
from transports.agents import openai_tools

TASK = "Print a report of two pages, Sales and Costs. What is on its second page, and what is the SHA-256 of the file?"


async def main(url: str, model: str = "gpt-5") -> str:
    client: Any = AsyncOpenAI()
    items: list[Any] = [{"role": "user", "content": TASK}]
    async with connect(url) as app:
        tools = openai_tools(app, api="responses", strict=True)
        while True:
            answer = await client.responses.create(model=model, input=items, tools=tools.definitions)
            calls = [item for item in answer.output if item.type == "function_call"]
            if not calls:
                return str(answer.output_text)
            items += [*answer.output, *[await tools.answer(call) for call in calls]]


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    print(asyncio.run(main(*sys.argv[1:])))
