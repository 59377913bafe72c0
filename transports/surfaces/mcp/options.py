"""What the operator of the bridge decides; a model can change none of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from ...errors import UsageError

__all__ = ["Options"]


class Options(BaseSettings):
    """``ABP_MCP_*`` variables, or arguments of the same names."""

    model_config = SettingsConfigDict(env_prefix="ABP_MCP_", env_ignore_empty=True, frozen=True)

    #: Target that is connected from the start.
    app: str | None = None
    #: Largest answer to a tool, in bytes of the whole message, without images.
    max_answer_bytes: int = Field(default=64 * 1024, ge=4 * 1024)
    #: Most bytes of images in one answer, before base64 (seed 003).
    max_image_bytes: int = Field(default=500_000, ge=0)
    #: Largest resource that is read in one piece, in bytes; beyond it only ranges are.
    max_resource_bytes: int = Field(default=64 << 20, gt=0)
    #: Largest request over HTTP, in bytes.
    max_request_bytes: int = Field(default=64 << 20, gt=0)
    #: Apps that one user may have connected at a time.
    max_sessions: int = Field(default=8, gt=0)
    #: Folders below which a model may name files to send, as in ``PATH``.
    roots: Annotated[tuple[Path, ...], NoDecode] = ()
    #: Secrets that let clients in over HTTP, ``TOKEN`` or ``USER=TOKEN``, with commas between them.
    token: str | None = Field(default=None, repr=False)

    @field_validator("roots", mode="before")
    @classmethod
    def _folders(cls, value: object) -> object:
        return [part for part in value.split(os.pathsep) if part] if isinstance(value, str) else value

    @field_validator("roots")
    @classmethod
    def _real(cls, value: tuple[Path, ...]) -> tuple[Path, ...]:
        for root in value:
            if not root.is_dir():
                raise ValueError(f"there is no folder {root}")
        return tuple(root.resolve() for root in value)

    @classmethod
    def load(cls, *, app: str | None = None, token: str | None = None) -> Options:
        """Read the environment; what is given here goes before it. Raises :class:`~transports.errors.UsageError` that
        names the variable at fault."""
        given = {name: value for name, value in (("app", app), ("token", token)) if value is not None}
        try:
            return cls(**given)  # type: ignore[arg-type]
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            name = "ABP_MCP_" + str(first["loc"][0]).upper()
            raise UsageError(f"{name}: {first['msg'].removeprefix('Value error, ')}") from error
