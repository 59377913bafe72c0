"""Secrets, kept out of everything that is shown or stored: rules, known values, and their masking.

* :mod:`.redaction` — the rules of what is secret by its name, in text and JSON.
* :mod:`.secrets` — ``${SECRET:NAME}`` and the values behind it, with the filter of all logs.

* :mod:`.masking` — finds values in every usual spelling and puts labels or asterisks in their place.
"""
