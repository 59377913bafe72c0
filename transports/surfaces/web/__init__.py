"""Web server of ``abp serve``: artifacts, calls and connected apps over HTTP, and the gallery (``docs/serve.md``)."""
