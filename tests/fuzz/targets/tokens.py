"""Tokens of an issuer: what they claim, their heads, and the issuer's keys."""

from __future__ import annotations

import base64
import json
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ..cases import result_of

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from transports.surfaces.mcp._http import JwtVerifier

_ISSUER, _AUDIENCE = "https://issuer.test/", "https://bridge.test/mcp"
_HEAD = b'{"typ": "JWT", "alg": "EdDSA"}'


def claims(data: bytes) -> None:
    """The claims of a token that is signed well, in the first line, its head in the second, a set of keys in the third.
    What is taken is a user of this issuer, for this audience, in its time."""
    from transports.surfaces.mcp._http import _usable_keys

    said, _, rest = data.partition(b"\n")
    head, _, keys = rest.partition(b"\n")
    verifier, key = _verifier()
    signed = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in (head or _HEAD, said))
    signature = base64.urlsafe_b64encode(key.sign(signed)).rstrip(b"=")
    taken = result_of(verifier.verify(b".".join((signed, signature)).decode()))
    if taken is not None:
        found = json.loads(said)
        assert found["iss"] == _ISSUER and _AUDIENCE in found["aud"] and int(found["exp"]) > time.time() - 60
        assert found["sub"] and taken.subject == taken.client_id == f"signed:{found['sub']}"
        assert isinstance(found.get("scope", found.get("scp", "")), str | list)
        assert all(isinstance(scope, str) and scope.isprintable() for scope in taken.scopes)
    with suppress(ValueError, RecursionError, _broken_set()):
        assert all(isinstance(kid, str) and kid for kid in _usable_keys(keys))


@cache
def _verifier() -> tuple[JwtVerifier, Ed25519PrivateKey]:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    from transports.surfaces.mcp._http import JwtVerifier
    from transports.surfaces.mcp._options import Options

    key = Ed25519PrivateKey.generate()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "key.pem")
        file.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
        return JwtVerifier(Options(jwt_issuer=_ISSUER, jwt_key_file=file), _AUDIENCE), key


def _broken_set() -> type[Exception]:
    import jwt

    return jwt.PyJWTError
