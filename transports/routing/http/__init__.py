"""Downloads over HTTP, behind one address guard.

* :mod:`._downloads` — :func:`download`: a ``downloadUrl`` into a staged file, with checks, retries, resuming and the
  deadline.
* :mod:`._redirects` — a GET whose redirects are checked one by one; :func:`fetch_public` — the resources of HTML that
  is rendered as a PDF.
* :mod:`._request` — the arguments of a download; one request on a connection of its own, and the errors for answers
  other than the file.
* :mod:`._addresses` — the guard for addresses, checked at the socket.
* :mod:`._urls` — parsing, origins, and the credentials for each origin; :mod:`._headers` — parsing of headers.
"""
