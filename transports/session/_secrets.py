"""Secrets of the settings file: their values, and the guard of sessions that use them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from .._internal.files import open_regular
from .._internal.masking import (
    KNOWN_SECRETS,
    KnownSecrets,
    fill_placeholders,
    known_to,
    map_texts,
    placeholders,
    record_given_secret,
    why_guessable,
)
from .._internal.tasks import in_thread_if, start_task
from ..artifacts._base import ArtifactStore
from ..base import Transport, WrappedTransport
from ..errors import (
    ABPError,
    BinaryError,
    CallTimeout,
    Disconnected,
    NotAbpApp,
    OutcomeUnknown,
    ProfileInUse,
    TransportError,
    UsageError,
)
from ..protocol._elicitation import DECLINED
from ..protocol._plain_text import origin_of
from ..protocol._strict_json import is_larger
from ..protocol.binary import Handle
from ..protocol.messages import Effect, Message, ServerCall, misdirected

if TYPE_CHECKING:
    from ._app_tables import SecretEntry

logger = logging.getLogger("transports")

#: Size limit of a secret in bytes.
_MAX_BYTES = 64 * 1024


class Secrets:
    """Secrets of one session, which belongs to ``user`` (``None``: the operator).

    In a condition, it is true if the settings file has any secrets, even if this user may use none of them."""

    def __init__(self, entries: Mapping[str, SecretEntry], user: str | None = None) -> None:
        self.user = user
        #: Values that are masked for this user.
        self.known = known_to(user)
        self._entries = entries

    def __bool__(self) -> bool:
        return bool(self._entries)

    async def values(self, names: Iterable[str], url: str | None) -> dict[str, str]:
        """Read the values for the app at ``url``; from then on they are masked.

        Raises :class:`~transports.errors.UsageError` for a name that is unknown or of another user, for an app at an
        origin to which the secret is not bound (``PERMISSION_DENIED``), and for a value that cannot be read."""
        names = sorted(names)
        self.origins(names, url)
        return {name: await _read_secret(name, self._entries[name], self.user) for name in names}

    def origins(self, names: Iterable[str], url: str | None) -> frozenset[str]:
        """Return the origins that may receive all of these secrets. Raises as :meth:`values`, but reads no value."""
        origin = origin_of(url)
        allowed_sets: list[frozenset[str]] = []
        for name in sorted(names):
            entry = self._entries.get(name)
            if entry is None or not entry.is_for(self.user):
                raise UsageError(f"unknown secret {name!r}; correct the name, or ask the operator for access")
            if origin not in entry.origins:
                raise misdirected(url, name)
            allowed_sets.append(frozenset(entry.origins))
        return frozenset.intersection(*allowed_sets) if allowed_sets else frozenset()

    async def mask_values_for(self, url: str | None) -> None:
        """Mask the values of this user that are bound to the origin of ``url``: the app may show a value that an
        earlier session sent. Values that only other users have are not masked: a user could confirm a guess through any
        app that repeats text. Commands are not run, and unreadable values are skipped."""
        origin = origin_of(url)
        for name, entry in self._entries.items():
            if origin in entry.origins and entry.command is None and entry.is_for(self.user):
                with contextlib.suppress(ABPError):
                    await _read_secret(name, entry, self.user)


async def _read_secret(name: str, entry: SecretEntry, user: str | None) -> str:
    """Read the value of a secret, which is masked for ``user`` from then on."""
    if entry.env is not None:
        value = os.environ.get(entry.env, "")
        where = f"the variable {entry.env}"
    elif entry.file is not None:
        value = await asyncio.to_thread(_read_secret_file, name, entry.file)
        where = "its file"
    else:
        value = await _run_secret_command(name, entry.command or ())
        where = "the output of its command"
    value = value.rstrip("\r\n")

    if len(value.encode("utf-8", "surrogatepass")) > _MAX_BYTES:
        raise UsageError(f"the secret {name} cannot be used: {where} has more than {_MAX_BYTES:,} bytes")

    fault = why_guessable(value)
    if fault is not None:
        raise UsageError(
            f"the secret {name} cannot be used: {where} has {fault}; a masked value can be found by guessing, so a "
            "secret must be hard to guess"
        )

    record_given_secret(user, name, value)
    return value


def _read_secret_file(name: str, file: Path) -> str:
    """Return the text of a file, cut one byte after the size limit. Only the log says why a file cannot be read."""
    try:
        with open_regular(file) as stream:
            return stream.read(_MAX_BYTES + 1).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        logger.warning("the secret %s cannot be read from %s: %s", name, file, type(error).__name__)
        raise UsageError(f"the secret {name} cannot be read from its file; the operator's log has more") from None


async def _run_secret_command(name: str, command: tuple[str, ...]) -> str:
    """Return the output of a command. Only the log says why one failed."""
    try:
        status, output = await _run_command(command)
        if status == 0:
            return output.decode()
        reason = f"it ended with status {status}"
    except TimeoutError:
        reason = "it did not end in time"
    except (NotImplementedError, OSError, ValueError) as error:
        reason = f"it could not be run or read ({type(error).__name__})"
    logger.warning("the command of the secret %s failed: %s", name, reason)
    raise UsageError(f"the secret {name} cannot be read: its command failed; the operator's log has more")


async def _run_command(command: tuple[str, ...]) -> tuple[int, bytes]:
    """Return the exit status and the output of a command, cut one byte after :data:`_MAX_BYTES`. Processes that the
    command started may live on and hold its stdout, but those of a command that takes too long end with it."""
    from ..mcp._stdio import end_stdout  # late, as is psutil: few settings have a command
    from ..playwright._process import kill, process_tree

    loop = asyncio.get_running_loop()
    pipes, protocol = await loop.subprocess_exec(
        lambda: asyncio.subprocess.SubprocessStreamProtocol(_MAX_BYTES, loop),
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    process = asyncio.subprocess.Process(pipes, protocol, loop)
    assert process.stdout is not None
    ending = start_task(end_stdout(process, process.stdout))
    output = b""
    timeout = 30.0
    try:
        async with asyncio.timeout(timeout):
            while chunk := await process.stdout.read(_MAX_BYTES):
                output = (output + chunk)[: _MAX_BYTES + 1]
            # After the command has ended, wait() would still wait for other processes that hold its stdout.
            if process.returncode is None:
                await process.wait()
        return cast(int, process.returncode), output
    finally:
        ending.cancel()
        if process.returncode is None:
            await asyncio.shield(kill(process_tree([process.pid])))
        pipes.close()


#: Number of open sessions by the names of their apps.
_open_sessions: Counter[str] = Counter()


@dataclass(frozen=True, slots=True)
class Guard:
    """Rules of a guarded session.

    ``make`` makes the transport with resolved ``settings`` (``headers``, ``cdp_url``). Their secrets must be bound to
    the origin of ``target``; those in ``cdp_url`` to its own origin. ``headers_to`` is the receiver of the headers if
    another server runs the browser. An app with a ``name`` may have ``max_sessions`` at a time. ``hidden`` are texts of
    the settings, paths and addresses, that the users of a server must not see. With any, a transport error is split:
    the operator's log gets all of it, the user its code and advice."""

    secrets: Secrets
    target: str = ""
    settings: Mapping[str, object] = field(default_factory=dict, repr=False)
    make: Callable[[Mapping[str, object]], Transport] | None = None
    hidden: tuple[str, ...] = ()
    name: str | None = None
    max_sessions: int | None = None
    headers_to: str = ""

    @property
    def known(self) -> KnownSecrets:
        """Values that are masked in this session: those that its user was given, and no others."""
        return self.secrets.known

    def mask_error(self, error: ABPError, *, settings: bool = False) -> ABPError:
        """Remove secrets and hidden texts from an error, in place. ``settings`` is true while the app's settings are
        used: a mistake in them is the operator's."""
        if self.name is not None:
            from ..playwright._diagnosis import sign_in_advice  # late: it loads the reader of a page's messages

            advice = f"it asks to sign in: the operator does that with `abp login {self.name}`"
            error.message = error.message.replace(sign_in_advice(), advice)
        self.known.mask_error(error)
        if self.name is not None and self.hidden:
            self._hide_how_reached(error, settings)
        error.args = (error.message,)
        return error

    def without_reason(self, message: Message) -> Message:
        """Return an event of the transport. From an event about the connection, remove a reason that must be hidden."""
        is_about_connection = message.type.startswith("connection/")
        if not is_about_connection or self.name is None or not self.hidden:
            return message
        level = logging.INFO if message.type == "connection/waiting" else logging.WARNING
        logger.log(level, "%s: %s", self.name, KNOWN_SECRETS.mask_tree(message.payload))
        return replace(message, payload={"reason": _message_for_user(Disconnected(""), self.name, settings=False)})

    def _hide_how_reached(self, error: ABPError, settings: bool) -> None:
        """Remove from an error, in place, what reveals how the app is reached; the log gets all of it."""
        replacement = _message_for_user(error, self.name, settings)
        if replacement is not None and replacement not in error.message:
            logger.warning("%s: %s", self.name, error)
            error.message = replacement
            error.details = {
                key: value for key, value in error.details.items() if isinstance(value, bool | int | float)
            }

        error.message = self._without_hidden(error.message)
        error.details = cast("dict[str, object]", map_texts(error.details, self._without_hidden))

    def _without_hidden(self, text: str) -> str:
        for hidden in self.hidden:
            text = text.replace(hidden, "…")
        return text


_OPERATOR = "the operator's log says why"
#: Messages for the user of a server in the place of transport errors; the first class that fits an error counts.
_USER_MESSAGES: Sequence[tuple[type[ABPError], str]] = (
    (ProfileInUse, "its profile is open in another browser; try again later"),
    (CallTimeout, "it did not answer in time"),
    (OutcomeUnknown, "its page navigated during the call, which may have run: look at the app before you call again"),
    (TransportError, "the connection to it failed"),
    (BinaryError, "a file of its answer cannot be used"),
)


def _message_for_user(error: ABPError, name: str | None, settings: bool) -> str | None:
    """Return the message that a user gets in place of the error's, or ``None`` if the error's message reveals nothing
    of how the app is reached. ``settings`` is true while the app's settings are used: mistakes there are the
    operator's."""
    if isinstance(error, NotAbpApp) and error.code == "PERMISSION_REQUIRED":
        return f"{name} asks to sign in: the operator does that with `abp login {name}`"
    if isinstance(error, CallTimeout) and error.message.startswith("no answer"):
        # The kit's own text, which names the timeout to raise.
        return None
    if isinstance(error, UsageError) and settings and error.code not in ("LIMIT_REACHED", "PERMISSION_REQUIRED"):
        return f"{name}: its entry in the settings cannot be used; {_OPERATOR}"
    for kind, words in _USER_MESSAGES:
        if isinstance(error, kind):
            return f"{name}: {words}; {_OPERATOR}"
    return None


class Guarded(WrappedTransport):
    """Guarded transport. Cookies are passed on unchanged: they are sent, and never shown. A view does not act for the
    session's user: names of secrets in its requests are not replaced by values."""

    def __init__(self, wrapped: Transport, guard: Guard) -> None:
        super().__init__(wrapped)
        self._guard = guard
        self._store: ArtifactStore
        self._is_counted = False

    def use_store(self, store: ArtifactStore) -> None:
        self._store = store
        super().use_store(store)

    async def open(self) -> None:
        self._count_session()
        with self._cleaning_errors(settings=True):
            await self._resolve_settings()
            await super().open()
            await self._guard.secrets.mask_values_for(self.url)

    def _count_session(self) -> None:
        """Count this session towards the limit of its app. :meth:`aclose` undoes that, also after a failed open."""
        guard = self._guard
        if guard.name is None or guard.max_sessions is None:
            return
        if _open_sessions[guard.name] >= guard.max_sessions:
            message = f"{guard.name} has {guard.max_sessions} sessions, which is its limit; try again later"
            raise UsageError(message, code="LIMIT_REACHED", retryable=True)
        _open_sessions[guard.name] += 1
        self._is_counted = True

    async def _resolve_settings(self) -> None:
        """Replace the wrapped transport by one whose settings have the values of their secrets, if there are any."""
        guard = self._guard
        if guard.make is None or not placeholders(guard.settings):
            return

        resolved_settings: dict[str, object] = {}
        for key, value in guard.settings.items():
            if key == "cdp_url":
                receiver = str(value)
            else:
                receiver = guard.headers_to or guard.target
            values = await guard.secrets.values(placeholders(value), receiver)
            resolved_settings[key] = fill_placeholders(value, values)
        self.wrapped = guard.make(resolved_settings)
        self.use_store(self._store)

    async def aclose(self) -> None:
        if self._is_counted:
            self._is_counted = False
            assert self._guard.name is not None
            _open_sessions[self._guard.name] -= 1
        await super().aclose()

    async def request(self, message: Message, *, timeout: float) -> Message:
        """Send a request with the values of its secrets, and mask the reply. If a secret cannot be used, send nothing
        and raise :class:`~transports.errors.UsageError`."""
        with self._cleaning_errors():
            reply = await super().request(await self._resolve_secrets(message), timeout=timeout)
        return await self._mask_message(reply)

    async def notify(self, message: Message) -> None:
        """Send a message with the values of its secrets. If a secret in an answer cannot be used, decline instead."""
        try:
            message = await self._resolve_secrets(message)
        except UsageError as error:
            logger.warning("a question of the app was declined: %s", error.message)
            message = replace(message, payload=DECLINED)
        with self._cleaning_errors():
            await super().notify(message)

    async def events(self) -> AsyncIterator[Message]:
        async for message in super().events():
            yield await self._mask_message(self._guard.without_reason(message))

    async def save(self, handle: Handle, path: Path, *, timeout: float) -> None:
        with self._cleaning_errors():
            await super().save(handle, path, timeout=timeout)

    async def _resolve_secrets(self, message: Message) -> Message:
        """Return a message with the values of its secrets. It must be sent at once, before its receiver can change."""
        if message.type not in ("capabilities/call", "elicitation/response"):
            # Messages of the kit itself hold no secrets.
            return message
        names = await in_thread_if(_is_large(message), placeholders, message.payload)
        if not names:
            return message

        secrets = self._guard.secrets
        values = await secrets.values(names, self.receiver(message))
        payload = fill_placeholders(message.payload, values)
        # Look up the receiver again: reading takes time, and a plug-in's transport may ignore `origins`.
        return replace(message, payload=payload, origins=secrets.origins(names, self.receiver(message)))

    async def _mask_message(self, message: Message) -> Message:
        secrets = self._guard.known
        if not secrets:
            return message
        return await in_thread_if(_is_large(message), _mask_secrets, secrets, message)

    @contextmanager
    def _cleaning_errors(self, *, settings: bool = False) -> Iterator[None]:
        try:
            yield
        except ABPError as error:
            self._guard.mask_error(error, settings=settings)
            raise


def _mask_secrets(secrets: KnownSecrets, message: Message) -> Message:
    def mask_effect(effect: Effect) -> Effect:
        detail = secrets.mask_tree(dict(effect.detail))
        return replace(effect, detail=detail)  # type: ignore[arg-type]  # a tree keeps its shape

    payload: object = message.payload
    if isinstance(payload, Effect):
        payload = mask_effect(payload)

    outputs = [
        replace(output, filename=output.filename and secrets.mask_text(output.filename)) for output in message.outputs
    ]

    call = message.server_call
    if call is not None:
        masked_parts: Any = secrets.mask_tree([call.tool, call.arguments, call.result])
        call = ServerCall(*masked_parts)

    return replace(
        message,
        payload=secrets.mask_tree(payload),
        outputs=outputs,
        effects=[mask_effect(effect) for effect in message.effects],
        warnings=[secrets.mask_text(warning) for warning in message.warnings],
        server_call=call,
    )


def _is_large(message: Message) -> bool:
    """Return whether a search for secrets in a message would hold the event loop."""
    return is_larger(message.payload, 1000)
