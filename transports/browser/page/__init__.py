"""The JavaScript that runs in a page (``*.js``), and the two channels to it: CDP and Playwright's own API."""
