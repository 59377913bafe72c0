"""What was tried to be faster, with its figures, for ``docs/performance.md``: also what lost, so that nobody tries it
again without a reason."""

from __future__ import annotations

__all__ = ["TRIED"]

TRIED = """\
## Tried

Each idea beside what it replaced, in turns on one busy machine of two cores; *kept* or *lost*.

**Small calls**, store `none:`, before → after, processor time of a call on a busy machine:

| | Python functions | one after the other | 100 at once |
| --- | --- | --- | --- |
| in-process | 260 → 119 | 94 → 31 µs | 86 → 26 µs |
| over a WebSocket | 314 → 115 | 169 → 57 µs | 103 → 32 µs |
| bare `websockets` echo | | 41-56 µs | 13-17 µs |

- Kept: the reference of an answer that no store keeps is hashed, named and described when somebody asks for it (21.6 µs
  less); a plain success is read without a model (2.4 → 0.1 µs); one timer for all requests instead of `asyncio.timeout`
  for each (3.3 → 0.3); an id without the object of `uuid.uuid4` (2.2 → 0.7); brackets are counted before levels are
  (2.0 µs less); events are made for listeners only. Together 94 → 47 µs in-process, 103 → 50 at once over a WebSocket.
- Kept: WebSocket messages handled where they arrive, without a reader's task, and sent without the library's contexts:
  50 → 35 µs at once, 98 → 74 µs one after the other. What the calls of one turn send is written in pieces of 64 KB:
  45 µs a call at once against 60 with each written by itself.
- Lost: pieces of 8 KB, so that the app begins sooner: 50 µs.
- Kept: a handler of an in-process app is waited for by a future instead of `asyncio.wait`: 44 → 35 µs.
- Kept: flat answers are told at a look, capabilities without a schema are not checked, a schema is found by its
  identity: 35 → 31 µs in-process.
- Lost: frames masked by integer arithmetic of our own, 1.35 µs against 1.41 of the library's `Frame.serialize`.
- Lost: random bytes fetched in advance for ids and masks: nothing to be measured (34.9 against 35.4 µs at once), and
  a pool that a fork must not share.
- Not done: a `Result` that is no frozen dataclass. Its 15 fields take 2 µs of a call, but `dataclasses.replace`,
  comparison and pickling are what users have of it. The rest of the distance to a bare echo are the task of each call
  (5 µs), eight coroutines in each other, and checks that an echo has no need of.

**Small answers into the default store** (`ABP_DURABILITY=process`), each another content, before → after:

| | system calls | one after the other | 64 at once |
| --- | --- | --- | --- |
| one artifact of 1 KB | 98 → 50 (20 → 12 `openat`, 17 → 4 `futex`) | 0.42 → 0.31 ms of the processor | 0.60 → 0.22 ms |

- Kept: one visit to one thread for all that wait, 32 at most, instead of two threads for each: reaching a thread took
  120 µs of the processor, as much as the work. Each folder is opened once a visit, and no thread is asked to prepare a
  folder that the commit opens itself.
- Not reached: 64 at once five times as fast as one after the other. An artifact takes about 150 µs of the processor
  without any thread: 50 of system calls (bare, in a loop: `open` and `write` of two files 19, two links 10, the rename
  8, unlinking 3, the lock and the folder 10), the rest Python under one interpreter's lock. The hops are all that can
  be shared.
- Not done: the disk's commits (`fsync`) of several files shared in one step. It needs the locks of all of them at once.
- Kept: the index is made of metadata that is checked by compiled code where it is as the store writes it (3 µs a
  file), with the garbage collector paused and the file open once: 56 → 22 µs an artifact, of which 9 are reading it
  and 6 SQLite's.
- Kept: a list compares the time of change of the metadata's folder, and reads its names only if it is another: 1,000 of
  100,000 artifacts in 19 instead of 165 ms.
- Lost: looking for what is not plain in metadata by one regular expression: 62 µs, where four questions take 1.

**Large WebSocket messages**, 64 MB as base64 JSON, received alone, best of five:

| engine | speed | processor time | longest pause of the loop |
| --- | --- | --- | --- |
| `websockets` | 136 MB/s | 171 ms | 99 ms |
| ours: a buffered protocol below its connection, frames into their own memory | 191 MB/s | 68 ms | 7.0 ms |
| `picows` 2.3, the payload taken as bytes | 173 MB/s | 89 ms | 108 ms |

- Lost: `picows`. It is one more engine with its own handshake, proxies and errors, slower here than frames read by
  ours, and with the long pause.
- Kept: the library's own hook, `create_connection=`, with frames of messages read by ours: proxies, TLS, redirects,
  headers, handshake and closing stay as they were tested.
- Kept: the memory of a large frame comes zeroed from the system, is not touched until it is written, and is handed out
  uncopied (`io.BytesIO(bytes(n))`: 6 µs for 85 MB, where `bytearray(n)` takes 43 ms).
- Kept: the search for the end of base64 goes in pieces of 4 MB with a pause after each: it keeps the interpreter's
  lock.
- Lost: base64 decoded and written in pieces of 1 MB or 512 KB: 34-53 ms for 64 MB, in pieces of 4 MB 31-37.
- Not needed: hashing beside decoding; the verified file comes at 0.88 to 0.93 of the speed of receiving alone.
"""
