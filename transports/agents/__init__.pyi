from ._models import (
    ModelTools as ModelTools,
    anthropic_tools as anthropic_tools,
    google_tools as google_tools,
    langchain_tools as langchain_tools,
    openai_agents_tools as openai_agents_tools,
    openai_tools as openai_tools,
    pydantic_ai_toolset as pydantic_ai_toolset,
)
from ._tools import (
    Answer as Answer,
    AppTool as AppTool,
    AppTools as AppTools,
    Attachment as Attachment,
    ToolOptions as ToolOptions,
)
