"""The values of secrets: read when they are sent, for the origins that they are bound to, and known from then on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ABPError, UsageError
from ..protocol.messages import misdirected
from ..protocol.secrets import give, is_guessable, known_to
from ..protocol.urls import origin_of

if TYPE_CHECKING:
    from .app_tables import SecretEntry

__all__ = ["Secrets"]

logger = logging.getLogger("transports")

#: Seconds for a command that prints a secret, and bytes of a secret.
_COMMAND_TIMEOUT, _MAX_BYTES = 30.0, 64 * 1024


class Secrets:
    """The secrets of one session. ``user`` is whom the session belongs to, ``None`` for the operator. True if the file
    has any, of this user or not."""

    def __init__(self, entries: Mapping[str, SecretEntry], user: str | None = None) -> None:
        self.user = user
        #: What is masked in what this user sees.
        self.known = known_to(user)
        self._entries = entries

    def __bool__(self) -> bool:
        return bool(self._entries)

    async def values(self, names: Iterable[str], url: str | None) -> dict[str, str]:
        """Return the values of these secrets for the app at ``url``, read now. They are known from then on
        (:data:`~transports.protocol.secrets.KNOWN_SECRETS`).

        Raises :class:`~transports.errors.UsageError` for a name that is unknown or another user's, for an app at an
        origin to which the secret is not bound (``PERMISSION_DENIED``), and for a value that cannot be read.
        """
        names = sorted(names)
        self.origins(names, url)
        return {name: await _read(name, self._entries[name], self.user) for name in names}

    def origins(self, names: Iterable[str], url: str | None) -> frozenset[str]:
        """Return the origins that all of these secrets may be sent to, that of ``url`` among them. Nothing is read.
        Raises as :meth:`values` does."""
        origin, allowed = origin_of(url), list[frozenset[str]]()
        for name in sorted(names):
            entry = self._entries.get(name)
            if entry is None or not entry.is_for(self.user):
                raise UsageError(f"there is no secret {name!r} (for you); correct the name, or ask the operator")
            if origin not in entry.origins:
                raise misdirected(url, name)
            allowed.append(frozenset(entry.origins))
        return frozenset.intersection(*allowed) if allowed else frozenset()

    async def know(self, url: str | None) -> None:
        """Read the values that are bound to the origin of ``url`` and for this user, so that the app cannot show what
        an earlier session told it. Those for others alone are not masked: a user who guesses one would learn that it is
        right from any app that repeats it. Commands are not run for that; what cannot be read is not known."""
        origin = origin_of(url)
        for name, entry in self._entries.items():
            if origin in entry.origins and entry.command is None and entry.is_for(self.user):
                with contextlib.suppress(ABPError):
                    await _read(name, entry, self.user)


async def _read(name: str, entry: SecretEntry, user: str | None) -> str:
    if entry.env is not None:
        value, where = os.environ.get(entry.env), f"the variable {entry.env}"
    elif entry.file is not None:
        value, where = await asyncio.to_thread(_content, name, entry.file), "its file"
    else:
        value, where = await _printed(name, entry.command or ()), "what its command prints"
    value = (value or "").rstrip("\r\n")
    if len(value.encode("utf-8", "surrogatepass")) > _MAX_BYTES:
        raise UsageError(f"the secret {name} cannot be used: {where} has more than {_MAX_BYTES:,} bytes")
    if (fault := is_guessable(value)) is not None:
        raise UsageError(
            f"the secret {name} cannot be used: {where} has {fault}; what is masked can be found by guessing, so a "
            "secret must be hard to guess"
        )
    give(user, name, value)
    return value


def _content(name: str, file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(_MAX_BYTES + 1).decode()
    except (OSError, ValueError) as error:
        logger.warning("the secret %s cannot be read from %s: %s", name, file, type(error).__name__)
        raise UsageError(f"the secret {name} cannot be read from its file; the operator's log has more") from None


async def _printed(name: str, command: tuple[str, ...]) -> str:
    reason = "it did not end in time"
    process = None
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert process.stdout is not None
        async with asyncio.timeout(_COMMAND_TIMEOUT):
            text = await process.stdout.read(_MAX_BYTES + 1)
            while more := await process.stdout.read(_MAX_BYTES):
                text = (text + more)[: _MAX_BYTES + 1]
            status = await process.wait()
        if status == 0:
            return text.decode()
        reason = f"it ended with status {status}"
    except (OSError, ValueError) as error:
        reason = f"it could not be run or read ({type(error).__name__})"
    except TimeoutError:
        pass
    finally:
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await asyncio.shield(process.wait())
    logger.warning("the command of the secret %s failed: %s", name, reason)
    raise UsageError(f"the secret {name} cannot be read: its command failed; the operator's log has more")
