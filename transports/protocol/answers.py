"""The answer of an app to a call: what it holds, or the error that it is (docs/protocol.md 3.3). No I/O."""

from __future__ import annotations

__all__ = ["answered_data"]


def answered_data(payload: object, capability: str) -> object:
    """Return the ``data`` of an app's answer to a call.

    A plain success, which most answers are, needs no model. Raises :class:`~transports.errors.CapabilityError` if the
    app said no, and :class:`~transports.errors.ProtocolError` for what is no answer.
    """
    if (
        type(payload) is dict
        and payload.get("success") is True
        and "error" not in payload
        and "cancelled" not in payload
        and "metadata" not in payload
    ):
        return payload.get("data")
    from ..errors import ProtocolError
    from .declarations import parse  # late, as they load pydantic
    from .payloads import Answer

    try:
        answer = parse(Answer, payload, f"the app's answer to {capability}")
    except ProtocolError as error:
        shape = "it must be {success: true, data} or {success: false, error: {code, message}}"
        raise ProtocolError(f"{error.message}; {shape}") from error.__cause__
    answer.raise_for_error(capability)
    return answer.data
