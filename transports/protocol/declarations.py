"""What an app declares of itself: its name, its capabilities, its resources, its manifest. No I/O.

The models are lenient where an app's meaning is clear and refuse what would have to be guessed (docs/protocol.md 1.5):
unknown fields are ignored, a null counts as missing, and most fields have a default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from ..errors import ProtocolError
from .messages import PROTOCOL_VERSION

__all__ = [
    "AppInfo",
    "Capability",
    "JSONObject",
    "Manifest",
    "Model",
    "Requirement",
    "Resource",
    "ResourceTemplate",
    "parse",
]


class Model(BaseModel):
    """A field that is null counts as missing, a number where text belongs as its text, and text where an object
    belongs as the field named ``_alone`` of it."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="ignore",
        frozen=True,
        coerce_numbers_to_str=True,
        allow_inf_nan=False,
    )
    _alone: ClassVar[str | None] = None

    @model_validator(mode="before")
    @classmethod
    def _forgiven(cls, value: object) -> object:
        if isinstance(value, str) and cls._alone:
            value = {cls._alone: value}
        return {key: item for key, item in value.items() if item is not None} if isinstance(value, Mapping) else value


def _mapping(value: object) -> object:
    return value if isinstance(value, Mapping) else {}


JSONObject = Annotated[dict[str, object], BeforeValidator(_mapping)]


class AppInfo(Model):
    """Who the app says it is."""

    _alone = "name"
    id: str = ""
    name: str = ""
    version: str = ""


class Requirement(Model):
    """What a capability needs before it is available."""

    _alone = "description"
    type: str = ""
    description: str = ""
    met: bool = False
    resolution: str | None = None


class Capability(Model):
    """One capability as the app lists it; most fields are optional in the wild. ``annotations`` are hints of an MCP
    server (``readOnlyHint``, ``destructiveHint``, …)."""

    _alone = "name"
    name: str
    title: str = ""
    description: str = ""
    input_schema: JSONObject = Field(default_factory=dict)
    output_schema: JSONObject = Field(default_factory=dict)
    available: bool = True
    requirements: list[Requirement] = Field(default_factory=list)
    experimental: bool = False
    deprecated: bool = False
    deprecation_message: str | None = None
    alternatives: list[str] = Field(default_factory=list)
    annotations: JSONObject = Field(default_factory=dict)


class Resource(Model):
    """A resource that an MCP server lists. ``size`` in bytes is what the server says."""

    uri: str
    name: str = ""
    title: str = ""
    description: str = ""
    mime_type: str | None = None
    size: Annotated[int, Field(ge=0)] | None = None


class ResourceTemplate(Model):
    """A kind of resources: ``uri_template`` as in RFC 6570."""

    uri_template: str
    name: str = ""
    title: str = ""
    description: str = ""
    mime_type: str | None = None


class Manifest(Model):
    """What an app's manifest says (PROTOCOL "Discovery"): ``abp`` is its protocol version."""

    abp: str = ""
    app: AppInfo = Field(default_factory=AppInfo)
    capabilities: list[Capability] = Field(default_factory=list)


_M = TypeVar("_M", bound=BaseModel)


def parse(model: type[_M], payload: object, what: str) -> _M:
    """``payload`` as ``model``. Raises :class:`~transports.errors.ProtocolError` that names the field at fault."""
    try:
        return model.model_validate(payload)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise ProtocolError(f"{what} is not what ABP {PROTOCOL_VERSION} says: {where}: {first['msg']}") from error
