"""ABP without I/O: messages, envelope, pending replies, capabilities, schemas.

* :mod:`.messages` — :class:`~.messages.Message`, the unit of a transport; pending requests and their replies.
* :mod:`._declarations`, :mod:`._payloads` — models of an app's declarations and messages.
* :mod:`._strict_json` — strict JSON parser and encoder, with bounds.
* :mod:`.binary`, :mod:`._media` — binary content: strict decoding and verification, MIME types and file names.
* :mod:`._find_content`, :mod:`._heuristics`, :mod:`._params` — where content is in an answer, which text is taken for
  content without a declaration, and content in the parameters of a call.
* :mod:`._capabilities` — lists of capabilities: merge, changes, suggestions; the answer to a call.
* :mod:`._elicitation` — answers to questions: options, defaults, validation.
* :mod:`.schema` — validation of parameters and answers against an app's JSON Schemas.
* :mod:`._plain_text` — sanitizing of an app's texts; URLs: redaction, origins.
* :mod:`._times` — timeouts, durations and timestamps.

Nothing here does I/O, except that a local file is opened when it is read.

The models below load when they are first used: pydantic takes longer to import than the rest of the kit.
"""

from __future__ import annotations

from .._internal.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
