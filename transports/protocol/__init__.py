"""ABP without I/O: messages, envelope, pending replies, capabilities, schemas, redaction.

* :mod:`.messages` — payloads as models, strict JSON.
* :mod:`.envelope` — messages as JSON text, content as base64; :mod:`.base64_runs` takes long base64 out of it unparsed.
* :mod:`.pending` — which reply belongs to which request.
* :mod:`.capabilities` — lists of capabilities merged and compared.
* :mod:`.elicitation` — the answer to a question when no handler is there.
* :mod:`.schema` — parameters and answers against the schemas that an app declares.
* :mod:`.redaction` — secrets taken out of text and JSON.
"""
