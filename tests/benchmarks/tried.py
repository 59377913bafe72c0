"""What was tried to be faster, with its figures, for ``docs/performance.md``: also what lost, so that nobody tries it
again without a reason."""

from __future__ import annotations

__all__ = ["TRIED"]

TRIED = """\
## Tried

Each idea beside what it replaced, in turns on one busy machine of two cores; *kept* or *lost*.

**Small calls**, store `none:`, before → after: in-process 260 → 119 calls of Python functions and 94 → 31 µs of processor
time one after the other, 86 → 26 µs with 100 at once; over a WebSocket 314 → 115 and 169 → 57 µs (a bare echo: 41 to 56),
103 → 32 µs at once (13 to 17).

- Kept: the reference of an answer that no store keeps is made when somebody asks for it. To hash, name, redact and describe
  took more than a third of an in-process call.
- Kept: a plain success is read without a model (pydantic: 7 µs, now 0.2); brackets are counted before levels are; flat answers
  are told at a look (1.2 → 0.4 µs); a schema is found by its identity.
- Kept: one timer for all requests in the place of `asyncio.timeout` for each, a future for a handler in the place of
  `asyncio.wait`, events made for listeners only, an id from `os.urandom` in the place of `uuid.uuid4` (2 → 0.6 µs).
- Kept: WebSocket messages handled where they arrive, without a reader's task: 50 → 35 µs at once, 98 → 74 one by one. What calls
  of one turn send is written in pieces of 8 KB; in one piece at the end of the turn the app idles until all are made.
- Lost: frames masked by integer arithmetic of our own, 1.35 µs against 1.41 of the library's `Frame.serialize`.
- Lost: random bytes fetched in advance for ids and masks: 0.5 µs against 0.6, and a pool that a fork must not share.
- Not done: a `Result` that is no frozen dataclass. Its 15 fields take 2 µs of a call, but `dataclasses.replace`, comparison and
  pickling are what users have of it. The rest of the distance to a bare echo are the task of each call, eleven coroutines
  in each other, and checks that an echo has no need of.

**Large WebSocket messages**, 64 MB as base64 JSON, received alone, best of five:

| engine | speed | processor time | longest pause of the loop |
| --- | --- | --- | --- |
| `websockets` | 136 MB/s | 171 ms | 99 ms |
| ours: an asyncio buffered protocol below its connection, frames straight into their memory | 191 MB/s | 68 ms | 7.0 ms |
| `picows` 2.3, the payload taken as bytes | 173 MB/s | 89 ms | 108 ms |

- Lost: `picows`. It is one more engine with its own handshake, proxies and errors, slower here and with the same long pause.
- Kept: the library's own hook, `create_connection=`, with frames of messages read by ours: proxies, TLS, redirects, headers,
  handshake and closing stay as they were tested.
- Kept: memory of a large frame comes zeroed from the system, untouched until it is written, and is handed out uncopied
  (`io.BytesIO(bytes(n))`); `bytearray(n)` writes all of it first.
- Kept: the search for the end of base64 goes in pieces of 4 MB with a pause after each: it keeps the interpreter's lock.
- Not needed any more: hashing beside decoding; the verified file comes at 0.88 to 0.93 of the speed of receiving alone.
"""
