"""ABP without I/O: messages, envelope, pending replies, capabilities, schemas.

* :mod:`.messages` — :class:`~.messages.Message`, the unit that a transport carries; requests that wait for replies.
* :mod:`.declarations`, :mod:`.payloads` — declarations and messages of an app, as models.
* :mod:`.strict_json` — JSON that is exact or refused.
* :mod:`.envelope` — messages as JSON text, content as base64.
* :mod:`.capabilities` — lists of capabilities, merged and compared; the answer to a call.
* :mod:`.elicitation` — default answers to questions, and faults in the answers of handlers.
* :mod:`.schema` — parameters and answers against the schemas that an app declares.
* :mod:`.plain_text` — texts of an app, made safe to show; URLs without their secrets.
* :mod:`.times` — durations and points in time as text.
"""
