"""Side effects of an app: prints, downloads, windows, permissions, dialogs, each recorded with its call."""
