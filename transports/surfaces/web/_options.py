"""Settings of the web server, made by its operator."""

from __future__ import annotations

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from ...artifacts._ref import Scope
from ...session._app_tables import settings_error
from ...session._evidence import checked_evidence
from ...session._settings import require_known
from ..shared._listening import base_url

_MIN_SECRET = 16


class Options(BaseSettings):
    """Settings from ``ABP_SERVE_*`` variables, or from arguments of the same names."""

    model_config = SettingsConfigDict(env_prefix="ABP_SERVE_", env_ignore_empty=True, frozen=True)

    #: The operator's token; random by default.
    token: str | None = Field(default=None, repr=False)
    #: Tokens of tenants: ``TENANT=TOKEN``, with commas between them. Each tenant sees only their own scope.
    tenants: str | None = Field(default=None, repr=False)
    #: Signing key of links, scope tokens and cookies; by default the key in the user's state folder.
    key: str | None = Field(default=None, repr=False)
    #: Address of this server behind a reverse proxy, such as ``https://files.example``; links begin with it.
    public_url: str | None = None
    #: Maximum size of an uploaded file in bytes; the limit of the store applies, too.
    max_upload_bytes: int = Field(default=1 << 30, gt=0)
    #: MIME types of uploads, as patterns with commas between them: ``image/*, application/pdf``.
    upload_types: str = "*/*"
    #: Number of browsers shared by all apps, each app with a context of its own; by default each app starts its own.
    browsers: int | None = Field(default=None, gt=0)
    #: Maximum number of connected apps.
    max_apps: int = Field(default=16, gt=0)
    #: Maximum number of clients of ``/events``.
    max_listeners: int = Field(default=1000, gt=0)
    #: Seconds that an app's question waits for an answer before the default answer is given.
    question_timeout: float = Field(default=120.0, gt=0, allow_inf_nan=False)

    #: Evidence that is kept of each call of an app: ``trace=on-failure,console`` (docs/evidence.md).
    evidence: str = ""

    @field_validator("public_url")
    @classmethod
    def _address(cls, value: str | None) -> str | None:
        if value is None:
            return None
        return base_url(value)

    @field_validator("evidence")
    @classmethod
    def _kinds(cls, value: str) -> str:
        return checked_evidence(value)

    @field_validator("token", "key")
    @classmethod
    def _long_enough(cls, value: str | None) -> str | None:
        if value is not None and (len(value) < _MIN_SECRET or not value.isascii() or not value.isprintable()):
            raise ValueError(
                f"a secret needs {_MIN_SECRET} ASCII characters or more; "
                'python -c "import secrets; print(secrets.token_urlsafe())" makes one'
            )
        return value

    @field_validator("tenants")
    @classmethod
    def _named(cls, value: str | None) -> str | None:
        tokens = set()
        for part in (value or "").split(","):
            tenant, equals, token = part.strip().partition("=")
            if part.strip() and not (equals and tenant.strip()):
                raise ValueError("write TENANT=TOKEN, with commas between them")
            if part.strip() and (not cls._long_enough(token) or token in tokens):
                raise ValueError("each tenant needs a token of its own")
            tokens.add(token)
        return value

    @property
    def tenant_scopes(self) -> dict[str, Scope]:
        """Scopes of the tenants by token."""
        parts = [part.strip().partition("=") for part in (self.tenants or "").split(",") if part.strip()]
        return {token: Scope(tenant=tenant.strip()) for tenant, _, token in parts}

    @classmethod
    def load(cls, *, token: str | None = None, browsers: int | None = None) -> Options:
        """Return the settings of the environment; arguments other than ``None`` take precedence.

        Raises :class:`~transports.errors.UsageError` with the name of an invalid or unknown variable."""
        require_known("ABP_SERVE_", cls.model_fields)
        try:
            arguments = {"token": token, "browsers": browsers}
            return cls(**{name: value for name, value in arguments.items() if value is not None})  # type: ignore[arg-type]
        except ValidationError as error:
            raise settings_error(error, lambda field: f"ABP_SERVE_{field.upper()}") from error
