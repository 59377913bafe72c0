"""A loop around Google's Gemini that uses an app: python examples/agents/with_google.py http://127.0.0.1:8000/

pip install abp-transports google-genai, and an API key."""

import asyncio
import sys
from typing import Any

from google import genai

from transports import connect
from transports.agents import google_tools

TASK = "Print a report of two pages, Sales and Costs. What is on its second page, and what is the SHA-256 of the file?"


async def main(url: str, model: str = "gemini-2.5-flash") -> str:
    client: Any = genai.Client()
    contents: list[Any] = [{"role": "user", "parts": [{"text": TASK}]}]
    async with connect(url) as app:
        tools = google_tools(app)
        # the loop is ours: the package would call Python functions by itself
        config = {"tools": tools.definitions, "automatic_function_calling": {"disable": True}}
        while True:
            answer = await client.aio.models.generate_content(model=model, contents=contents, config=config)
            if not answer.function_calls:
                return str(answer.text)
            results = [await tools.answer(call) for call in answer.function_calls]
            contents += [answer.candidates[0].content, {"role": "user", "parts": results}]


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    print(asyncio.run(main(*sys.argv[1:])))
