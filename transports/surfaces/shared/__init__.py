"""Parts that several surfaces share: connected apps, the activity log, the watcher of a store, questions as forms."""
