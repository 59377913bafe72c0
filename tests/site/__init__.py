"""The documentation site: ``make docs`` builds it into ``site/``, and fails on anything that leads nowhere."""
