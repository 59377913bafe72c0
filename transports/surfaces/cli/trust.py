"""``abp mcp --trust``."""

from __future__ import annotations

from .output import print_text

__all__ = ["trust_found_file"]


def trust_found_file() -> int:
    """Trust the settings file of the working folder. Nothing is served: where ``--trust`` stands in a client's settings
    for good, it would trust whatever the file becomes."""
    from ...protocol.redaction import Redactor
    from ...session import config_file

    file, redactor = config_file.trust_found_file(), Redactor()
    print_text(f"Trusted as long as it stays as it is: {file.path}")
    for table, settings in sorted((file.tables or {}).items()):
        for key, value in settings.items():
            # what a secret is read from is what is trusted; the value itself is elsewhere
            shown = value if table == "secrets" else redactor.field(key, value)
            print_text(f"  {table}.{key} = {shown!r}")
    return 0
