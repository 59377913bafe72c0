"""The browser process: find it, launch or attach to it, its profile and temporary folder, its end."""
