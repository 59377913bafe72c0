"""Models of an app's declarations: its name, capabilities, resources and manifest.

The models are lenient where an app's meaning is clear, and refuse input that is ambiguous (docs/protocol.md 1.5):
unknown fields are ignored, a null counts as missing, and most fields have a default.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Annotated, ClassVar, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from .._internal import notebook
from ..errors import ProtocolError
from ._strict_json import members_of
from .messages import PROTOCOL_VERSION
from .schema import declared_parameters


class Model(BaseModel):
    """Base of the models: fields in camelCase on the wire, unknown fields ignored, values frozen.

    A null counts as missing. A number in place of text counts as its text. Text in place of an object becomes the field
    named by ``_text_field``.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="ignore",
        frozen=True,
        coerce_numbers_to_str=True,
        allow_inf_nan=False,
    )
    _text_field: ClassVar[str | None] = None

    @model_validator(mode="before")
    @classmethod
    def _as_fields(cls, value: object) -> object:
        if isinstance(value, str) and cls._text_field:
            return {cls._text_field: value}
        if isinstance(value, Mapping):
            return {key: item for key, item in value.items() if item is not None}
        return value


#: JSON object. Any other value counts as an empty object.
JSONObject = Annotated[dict[str, object], BeforeValidator(members_of)]


class AppInfo(Model):
    """Id, name and version of an app, "" for missing ones, and what else it says of itself: URLs of its home page, its
    icon and its support, which may be an e-mail address."""

    _text_field = "name"
    id: str = ""
    name: str = ""
    version: str = ""
    description: str | None = None
    homepage: str | None = None
    icon: str | None = None
    support: str | None = None


class Requirement(Model):
    """Condition for a capability to be available. ``resolution`` is the app's text on how to meet it."""

    _text_field = "description"
    type: str = ""
    description: str = ""
    met: bool = False
    resolution: str | None = None


class Capability(Model):
    """Capability as listed by the app (docs/protocol.md 2.5). Only ``name`` is required.

    ``input_schema`` and ``output_schema`` are JSON Schemas, empty if the app declares none. ``features`` are names and
    whether the app has them. ``browser_requirement`` is the app's text on the browser that it needs. ``alternatives``
    are names of other capabilities. ``annotations`` are hints of an MCP server (``readOnlyHint``, ``destructiveHint``,
    …).
    ``view`` is the address (``ui://…``) of the view of an MCP server's tool (docs/views.md).
    """

    _text_field = "name"
    name: str
    title: str = ""
    description: str = ""
    input_schema: JSONObject = Field(default_factory=dict)
    output_schema: JSONObject = Field(default_factory=dict)
    available: bool = True
    requirements: list[Requirement] = Field(default_factory=list)
    features: JSONObject = Field(default_factory=dict)
    browser_requirement: str | None = None
    experimental: bool = False
    deprecated: bool = False
    deprecation_message: str | None = None
    alternatives: list[str] = Field(default_factory=list)
    annotations: JSONObject = Field(default_factory=dict)
    view: str | None = None

    def __repr__(self) -> str:
        about = f": {self.description[:80]!r}" if self.description else ""
        return f"<Capability {self.name[:80]!r}{about}>"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        rows = [
            (place, declared.get("type", ""), "yes" if needed else "", declared.get("description", ""))
            for place, declared, needed in islice(declared_parameters(self.input_schema), 1000)
        ]
        head = ("parameter", "type", "needed", "description")
        parameters = notebook.table(head, rows, title=self.name, count=len(rows))
        if not self.description:
            return parameters
        return parameters + notebook.preformatted(self.description)


class Resource(Model):
    """Resource listed by an MCP server. ``size`` is in bytes, as declared by the server."""

    uri: str
    name: str = ""
    title: str = ""
    description: str = ""
    mime_type: str | None = None
    size: Annotated[int, Field(ge=0)] | None = None


class ResourceTemplate(Model):
    """Resource template listed by an MCP server. ``uri_template`` is in the syntax of RFC 6570."""

    uri_template: str
    name: str = ""
    title: str = ""
    description: str = ""
    mime_type: str | None = None


class Manifest(Model):
    """Manifest of an app (docs/protocol.md 7.2). ``abp`` is the protocol version it was written for."""

    abp: str = ""
    app: AppInfo = Field(default_factory=AppInfo)
    capabilities: list[Capability] = Field(default_factory=list)


_M = TypeVar("_M", bound=BaseModel)
_JSON_KINDS = {type(None): "null", str: "text", list: "an array", bool: "a boolean", int: "a number", float: "a number"}


def parse(model: type[_M], payload: object, what: str) -> _M:
    """Parse ``payload`` as ``model``.

    Raises :class:`~transports.errors.ProtocolError`. Its message begins with ``what`` and names the invalid field.
    """
    try:
        return model.model_validate(payload)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        if first["type"] == "missing":
            fault = "it is missing"
        elif first["type"] == "model_type":
            fault = f"an object belongs here, not {_JSON_KINDS.get(type(first['input']), 'other data')}"
        else:
            fault = first["msg"]
        raise ProtocolError(f"{what} is not valid ABP {PROTOCOL_VERSION}: {where}: {fault}") from error
