"""A batch from its input to its manifest: reading jobs, running them with limits and retries, writing the outcomes."""

from ._batch import add_input, export_files, open_run, run
from ._outputs import Report, export_run, input_notes
from ._reading import require_input, spool_stream
from ._runner import Driver, Runner, RunOptions, pool_size

__all__ = [
    "Driver",
    "Report",
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
