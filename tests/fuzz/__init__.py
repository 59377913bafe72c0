"""Fuzzing: inputs that nobody thought of, through every door by which bytes come in.

* :mod:`.targets` — one function for each door.
* :mod:`.cases` — the rule that every case keeps: our own errors only, little processor time.
* :mod:`.mutation` — new inputs out of old ones.
* :mod:`.worker` — one target in a process of its own, guided by coverage where ``atheris`` is installed.
* ``python -m tests.fuzz`` — all targets, for minutes (``make fuzz``); :mod:`.test_fuzz` — for a second each.
* ``corpus/TARGET/`` — the inputs to begin with: written by hand, and those that once found a fault.
"""
