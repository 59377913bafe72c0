"""Privacy: redaction and masking of secrets in everything that is shown or stored.

* :mod:`._redaction` — redaction rules for text and JSON by names and forms, and the secret values of one call.
* :mod:`._forms` — multipart bodies and the fields of HTML, read by their structure.
* :mod:`._secrets` — ``${SECRET:NAME}`` placeholders, the known values of the process and of users, and the log filter.
* :mod:`._masking` — search for values in the usual encodings, and their replacement by labels or asterisks.
"""
