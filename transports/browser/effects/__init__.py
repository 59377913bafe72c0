"""Side effects of an app (dialogs, prints, downloads, windows, permissions), each recorded with the call behind it."""
