"""What a capability declares of its parameters and answers, and what truly comes: JSON Schema, in bounds. No I/O."""

from .validate import check_output, check_params

__all__ = ["check_output", "check_params"]
