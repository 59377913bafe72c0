"""Settings and limits of the web server."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from ...artifacts._ref import Scope
from ...session._app_tables import settings_error
from ...session._evidence import checked_evidence
from ...session._settings import require_known
from ..shared._listening import base_url


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a server that are not settings. Times are in seconds."""

    #: For running responses when the server ends.
    shutdown_timeout: float = 1.0
    #: For a client to take one piece of an artifact.
    piece_timeout: float = 30.0
    #: For the head of the next file in a form. Slower bodies are ended by ``in_time``.
    part_timeout: float = 60.0
    #: A client of ``/events`` that has not taken a byte for so long is dropped.
    stall_timeout: float = 10.0
    #: Running calls of one app.
    calls: int = 32
    #: Listed resources, of which a server may have any number.
    resources: int = 5000
    #: Without a request for a run, until its ledger is closed.
    run_idle: float = 60.0
    #: Between two reads of a watched run.
    run_interval: float = 1.0
    #: Live views. One more closes the oldest.
    views: int = 8
    #: Characters of a view's document, bytes of its tool's arguments and result as JSON, and files that it hands out.
    view_document: int = 8 << 20
    view_input: int = 16 << 20
    view_files: int = 200
    #: For a call whose view is requested, and for the server's answer to a view.
    view_timeout: float = 60.0


LIMITS = Limits()


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
    def _normalise_address(cls, value: str | None) -> str | None:
        if value is None:
            return None
        return base_url(value)

    @field_validator("evidence")
    @classmethod
    def _check_evidence(cls, value: str) -> str:
        return checked_evidence(value)

    @field_validator("token", "key")
    @classmethod
    def _check_secret(cls, value: str | None) -> str | None:
        if value is not None and (len(value) < 16 or not value.isascii() or not value.isprintable()):
            raise ValueError(
                "a secret needs 16 ASCII characters or more; "
                'python -c "import secrets; print(secrets.token_urlsafe())" makes one'
            )
        return value

    @field_validator("tenants")
    @classmethod
    def _check_tenants(cls, value: str | None) -> str | None:
        tokens = set()
        for tenant, equals, token in _tenants_in(value):
            if not equals or not tenant.strip():
                raise ValueError("write TENANT=TOKEN, with commas between them")
            if not cls._check_secret(token) or token in tokens:
                raise ValueError("each tenant needs a different token")
            tokens.add(token)
        return value

    @property
    def tenant_scopes(self) -> dict[str, Scope]:
        """Scopes of the tenants by token."""
        return {token: Scope(tenant=tenant.strip()) for tenant, _, token in _tenants_in(self.tenants)}

    @classmethod
    def load(cls, *, token: str | None = None, browsers: int | None = None) -> Options:
        """Return the settings of the environment; arguments other than ``None`` take precedence.

        Raises :class:`~transports.errors.UsageError` with the name of an invalid or unknown variable."""
        require_known("ABP_SERVE_", cls.model_fields)
        arguments = {"token": token, "browsers": browsers}
        given = {name: value for name, value in arguments.items() if value is not None}
        try:
            return cls(**given)  # type: ignore[arg-type]
        except ValidationError as error:
            raise settings_error(error, lambda field: f"ABP_SERVE_{field.upper()}") from error


def _tenants_in(tenants: str | None) -> list[tuple[str, str, str]]:
    """Return each ``TENANT=TOKEN`` of the setting as its name, the equals sign (empty if missing) and its token."""
    parts = (part.strip() for part in (tenants or "").split(","))
    return [part.partition("=") for part in parts if part]
