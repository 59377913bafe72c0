"""A batch from its input to its manifest: read jobs, run them with limits and retries, write what became of them."""

from .batch import open_run, run_batch
from .options import RunOptions
from .outputs import export_run
from .runner import Driver, Runner

__all__ = ["Driver", "RunOptions", "Runner", "export_run", "open_run", "run_batch"]
