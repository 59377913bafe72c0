"""Names of the command line's options in messages that name arguments of the Python API."""

from __future__ import annotations

import re
from typing import TypeVar

from ...errors import ABPError, CapabilityError, TransportError, UsageError

__all__ = ["naming_options"]

E = TypeVar("E", bound=ABPError)

#: Arguments of the Python API in messages, and the options that they are here.
_OPTIONS = {
    "connect(timeout=) or ": "",
    "give a pathlib.Path, bytes or a BinaryData": "give it with --file KEY=PATH (in the shell KEY@PATH)",
    "raise timeout=": "raise --timeout",
    "token= or headers=": "--token or --header",
    "headers=": "--token and --header",
    "storage_state=": "--storage-state",
    "profile=": "--profile",
    "cdp_url=": "--cdp-url",
    "browser_server=": "--browser-server",
    "adapter=": "--adapter",
    "allow_programs=": "--allow-programs",
    "files_from=": "--files-from",
    "with target=": "with --target",
}
#: Not in an option, or in the query of an address.
_ARGUMENT = re.compile(rf"(?<![-\w?&])(?:{'|'.join(map(re.escape, _OPTIONS))})")


#: A parameter that should be text, and was read as JSON because it can be.
_READ_AS_JSON = re.compile(r"^params\.([\w.-]+): (-?[\d.]+|true|false|null) is not of type \"string\"$")


def naming_options(error: E) -> E:
    """Return an error, changed in place, with the names of options in the place of arguments, and how ``-p`` takes a
    text that is JSON, too. Words of the app stay."""
    if isinstance(error, UsageError | TransportError):
        error.message = _ARGUMENT.sub(lambda found: _OPTIONS[found[0]], error.message)
    elif isinstance(error, CapabilityError):  # what a session adds where nobody can be asked
        error.message = error.message.replace("nobody answered: give on_elicitation=", "nobody answered: no terminal")
    faults = error.details.get("faults") if isinstance(error, UsageError) else None
    for fault in faults if isinstance(faults, list) else ():
        if found := _READ_AS_JSON.match(str(fault)):
            error.message += f"; as text: -p '{found[1]}=\"{found[2]}\"'"
            break
    return error
