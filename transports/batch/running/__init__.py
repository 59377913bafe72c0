"""A batch from its input to its manifest: read jobs, run them with limits and retries, write what became of them."""

from .batch import add_input, open_run, run
from .files import export_files
from .notes import input_notes
from .options import RunOptions, pool_size
from .outputs import export_run
from .reading import require_input, spool_stream
from .runner import Driver, Runner

__all__ = [
    "Driver",
    "RunOptions",
    "Runner",
    "add_input",
    "export_files",
    "export_run",
    "input_notes",
    "open_run",
    "pool_size",
    "require_input",
    "run",
    "spool_stream",
]
