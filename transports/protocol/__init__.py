"""ABP without I/O: messages, envelope, pending replies, capabilities, schemas, redaction.

* :mod:`.messages` — :class:`~.messages.Message`, what a transport carries; :mod:`.initialize` — the first one.
* :mod:`.declarations`, :mod:`.payloads` — what an app sends, as models.
* :mod:`.strict_json` — JSON that is exact or refused; :mod:`.base64_runs` — long base64 in it, without a copy.
* :mod:`.envelope` — messages as JSON text, content as base64.
* :mod:`.pending` — which reply belongs to which request.
* :mod:`.capabilities` — lists of capabilities, merged and compared; :mod:`.spelling` — names that may have been meant.
* :mod:`.elicitation` — the answer to a question when no handler is there, and what is wrong with a handler's.
* :mod:`.schema` — parameters and answers against the schemas that an app declares.
* :mod:`.redaction` — secrets taken out of text and JSON; :mod:`.urls` — out of URLs.
* :mod:`.timestamps` — points in time as text.
"""
