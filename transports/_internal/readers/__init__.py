"""Programs that read files of apps in processes with limits: the first page of a PDF, its text, a smaller picture."""
