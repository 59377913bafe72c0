"""Common parts of the surfaces: connected apps, activity log, detached calls, watcher of a store, questions as forms,
capabilities as tools, previews of files, errors for models, connection limits."""
