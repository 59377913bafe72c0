"""Common parts of the surfaces: connected apps, activity log, detached calls, watcher of a store, questions as forms,
previews of files, connection limits."""
