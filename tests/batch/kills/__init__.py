"""Runs whose parts are killed at random moments, against an app that counts what ran.

``python -m tests.batch.kills --jobs 10000 --kills 30`` is the long form of ``test_kills.py``. Killed are workers of
``abp batch``, and with ``--app pages`` browsers and Playwright drivers; with ``--ledger postgres`` the database crashes
on the way, too. Workers that were killed are started again, until the run has ended.
"""

from .matrix import Killed, Plan, kill_and_resume

__all__ = ["Killed", "Plan", "kill_and_resume"]
