"""An agent of the OpenAI Agents SDK that uses an app: python examples/agents/with_openai_agents.py http://127.0.0.1:8000/

pip install abp-transports openai-agents, and an API key of the model."""

import asyncio
import sys

from agents import Agent, Model, Runner

from transports import connect
from transports.agents import openai_agents_tools

TASK = "Print a report of two pages, Sales and Costs. What is on its second page, and what is the SHA-256 of the file?"


async def main(url: str, model: Model | str = "gpt-5") -> str:
    async with connect(url) as app:
        agent = Agent(name="Clerk", model=model, tools=[*openai_agents_tools(app, strict=True)])
        return str((await Runner.run(agent, TASK)).final_output)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    print(asyncio.run(main(*sys.argv[1:])))
