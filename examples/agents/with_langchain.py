"""An agent of LangChain that uses an app: python examples/agents/with_langchain.py http://127.0.0.1:8000/

pip install abp-transports langchain langchain-openai, and an API key of the model."""

import asyncio
import sys

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel

from transports import connect
from transports.agents import langchain_tools

TASK = "Print a report of two pages, Sales and Costs. What is on its second page, and what is the SHA-256 of the file?"


async def main(url: str, model: BaseChatModel | str = "openai:gpt-5") -> str:
    async with connect(url) as app:
        agent = create_agent(model, langchain_tools(app))
        answer = await agent.ainvoke({"messages": [{"role": "user", "content": TASK}]})
        return str(answer["messages"][-1].content)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    print(asyncio.run(main(*sys.argv[1:])))
