"""Secrets, kept out of everything that is shown or stored: rules, known values, and their masking.

* :mod:`.redaction` — the rules of what is secret by its name, in text and JSON.
* :mod:`.secrets` — ``${SECRET:NAME}`` and the values behind it, with the filter of all logs.

* :mod:`.masking` — finds values in every usual spelling and puts labels or asterisks in their place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from ._redaction import REDACTED as REDACTED, Redactor as Redactor, SecretValues as SecretValues
    from ._secrets import (
        KNOWN_SECRETS as KNOWN_SECRETS,
        MAX_MASKED_BYTES as MAX_MASKED_BYTES,
        NO_SECRETS as NO_SECRETS,
        KnownSecrets as KnownSecrets,
        give as give,
        is_guessable as is_guessable,
        known_to as known_to,
        placeholder_paths as placeholder_paths,
        placeholders as placeholders,
        with_values as with_values,
    )
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "_redaction": (
                "REDACTED",
                "Redactor",
                "SecretValues",
            ),
            "_secrets": (
                "KNOWN_SECRETS",
                "KnownSecrets",
                "MAX_MASKED_BYTES",
                "NO_SECRETS",
                "give",
                "is_guessable",
                "known_to",
                "placeholder_paths",
                "placeholders",
                "with_values",
            ),
        },
    )
