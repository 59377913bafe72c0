"""An agent of Pydantic AI that uses an app: python examples/agents/with_pydantic_ai.py http://127.0.0.1:8000/

pip install abp-transports "pydantic-ai-slim[openai]", and an API key of the model."""

import asyncio
import sys

from pydantic_ai import Agent
from pydantic_ai.models import Model

from transports import connect
from transports.agents import pydantic_ai_toolset

TASK = "Print a report of two pages, Sales and Costs. What is on its second page, and what is the SHA-256 of the file?"


async def main(url: str, model: Model | str = "openai:gpt-5") -> str:
    async with connect(url) as app:
        agent = Agent(model, toolsets=[pydantic_ai_toolset(app)])
        return str((await agent.run(TASK)).output)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    print(asyncio.run(main(*sys.argv[1:])))
