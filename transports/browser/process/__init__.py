"""The browser process: find an executable, start it or attach to it, manage its profile and temporary files, end it."""
