"""ABP without I/O: messages, envelope, pending replies, capabilities, schemas.

* :mod:`.messages` — :class:`~.messages.Message`, the unit of a transport; pending requests and their replies.
* :mod:`.declarations`, :mod:`.payloads` — models of an app's declarations and messages.
* :mod:`.strict_json` — strict JSON parser and encoder, with bounds.
* :mod:`.envelope` — messages as JSON text, content as base64.
* :mod:`.capabilities` — lists of capabilities: merge, changes, suggestions; the answer to a call.
* :mod:`.elicitation` — answers to questions: options, defaults, validation.
* :mod:`.schema` — validation of parameters and answers against an app's JSON Schemas.
* :mod:`.plain_text` — sanitizing of an app's texts; URLs: redaction, origins.
* :mod:`.times` — timeouts, durations and timestamps.
"""
