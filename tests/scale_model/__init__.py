"""A model of many workers on one ledger: ``python -m tests.scale_model``."""
