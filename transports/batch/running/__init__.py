"""A batch from its input to its manifest: reading jobs, running them with limits and retries, writing the outcomes."""
