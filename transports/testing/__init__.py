"""What tests of apps and of transports are made of. Nothing here is loaded by :mod:`transports` itself.

* :mod:`.contract` — the behaviours that every transport must show, for authors of transports.
"""
