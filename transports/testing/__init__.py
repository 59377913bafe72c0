"""Tools for tests: of apps, of transports, and of programs that use them. :mod:`transports` itself loads none of it.

* :mod:`.plugin` — the pytest plugin; :mod:`.failure_report` and :mod:`.servers` do its work.
* :mod:`.assertions` — assertions about results.
* :mod:`.conformance` — checks whether an app speaks ABP.
* :mod:`.contract` — the behaviours that every transport must show, for authors of transports.
"""
