"""Privacy: redaction and masking of secrets in everything that is shown or stored.

* :mod:`._redaction` — redaction rules for text and JSON by names and forms, and the secret values of one call.
* :mod:`._forms` — multipart bodies and the fields of HTML, read by their structure.
* :mod:`._secrets` — ``${SECRET:NAME}`` placeholders, the known values of the process and of users, and the log filter.
* :mod:`._masking` — search for values in all usual spellings, and their replacement by labels or asterisks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from ._forms import (
        FORM as FORM,
        Part as Part,
        field_name as field_name,
        form_parts as form_parts,
        parts_of as parts_of,
        value_attributes as value_attributes,
        with_contents as with_contents,
    )
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
            "_forms": (
                "FORM",
                "Part",
                "field_name",
                "form_parts",
                "parts_of",
                "value_attributes",
                "with_contents",
            ),
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
