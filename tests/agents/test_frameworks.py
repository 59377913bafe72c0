"""Functions for frameworks without their frameworks; with them: tests/hosts/test_agents.py."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.conftest import Connect
from tests.test_public_api import loaded_by
from transports import UsageError
from transports.agents import langchain_tools, openai_agents_tools, pydantic_ai_toolset


@pytest.mark.parametrize(
    ("function", "module", "package"),
    [
        (pydantic_ai_toolset, "pydantic_ai", "pydantic-ai-slim"),
        (langchain_tools, "langchain_core", "langchain-core"),
        (openai_agents_tools, "agents", "openai-agents"),
    ],
)
async def test_missing_framework_error_includes_install_command(
    app_of: Connect, monkeypatch: pytest.MonkeyPatch, function: Any, module: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    async with app_of({}) as app:
        with pytest.raises(UsageError, match=rf"{function.__name__} needs {package} .*: pip install -U {package}"):
            function(app)


@pytest.mark.load
def test_importing_agents_loads_no_framework() -> None:
    modules = loaded_by("import transports.agents\nfrom transports.agents import openai_tools, langchain_tools")
    frameworks = {"pydantic_ai", "langchain_core", "agents", "openai", "anthropic", "google", "mcp", "mcp_types"}
    assert not {name.split(".")[0] for name in modules} & frameworks
    assert "playwright" not in modules and "aiohttp" not in modules
