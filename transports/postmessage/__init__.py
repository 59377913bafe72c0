"""The iframe transport: an app embedded in a page of the kit, driven by messages."""
