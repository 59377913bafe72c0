"""What was tried to be faster, with its figures, for ``docs/performance.md``: also what lost, so that nobody tries it
again without a reason."""

from __future__ import annotations

__all__ = ["TRIED"]

TRIED = """\
Each idea beside what it replaced, in turns on one busy machine of two cores; *kept* or *lost*.

**Small calls**, store `none:`, before → after, processor time of a call on a busy machine:

| | Python functions | one after the other | 100 at once |
| --- | --- | --- | --- |
| in-process | 260 → 119 | 94 → 31 µs | 86 → 26 µs |
| over a WebSocket | 314 → 115 | 169 → 57 µs | 103 → 32 µs |
| bare `websockets` echo | | 41-56 µs | 13-17 µs |

- Kept: the reference of an answer that no store keeps is hashed, named and described when somebody asks for it (21.6 µs
  less); a plain success is read without a model (2.4 → 0.1 µs); an id without the object of `uuid.uuid4` (2.2 → 0.7);
  brackets are counted before levels are (2.0 µs less); events are made for listeners only. Together 94 → 47 µs
  in-process, 103 → 50 at once over a WebSocket.
- Kept: WebSocket messages handled where they arrive, without a reader's task, and sent without the library's contexts:
  50 → 35 µs at once, 98 → 74 µs one after the other.
- Dropped: what the calls of one turn send written in one piece, and one timer for all requests. Without them 100 calls
  take 1 ms longer: 15.1 → 16.1 ms one after the other, 3.7 → 4.6 ms at once.
- Dropped: work on a page driven in its caller's task, without a task of its own: 50 calls of a page take 2 % longer.
- Kept: a handler of an in-process app is waited for by a future instead of `asyncio.wait`: 44 → 35 µs.
- Kept: flat answers are told at a look, capabilities without a schema are not checked, a schema is found by its
  identity: 35 → 31 µs in-process.
- Lost: frames masked by integer arithmetic of our own, 1.35 µs against 1.41 of the library's `Frame.serialize`.
- Lost: random bytes fetched in advance for ids and masks: nothing to be measured (34.9 against 35.4 µs at once), and
  a pool that a fork must not share.
- Kept: no `typing.cast` in the look at an answer. `cast(list[object], …)` makes a type for each list, 22 in 20 rows.
- Not reached: 0.6 of an echo's processor time. Of 26 µs, measured alone at their best: the caller's task with its
  future and its turns of the loop 3.5, the id, the envelope and the frame of a request 2.1, reading the answer 1.2,
  matching and the deadline 1.5, the `Result` 1.8, the look for content and its JSON 2.8. The other 13 are the socket's
  reads and writes, and what a session does besides: retries, cancellation, events, limits, callbacks. To save one more
  coroutine gives 0.1.
- Not done: a `Result` that is no frozen dataclass. Its 15 fields take 2 µs of a call, but `dataclasses.replace`,
  comparison and pickling are what users have of it. Nor one with a dictionary in the place of slots: 0.9 µs less, 520
  bytes instead of 160, and an `__init__` by hand that says each field again.

**Answers of a page**, store `none:`, in turns with their limits (one bare CDP command; `evaluate` of JSON text):

| | packed in the page | our Python functions | whole call | against its limit |
| --- | --- | --- | --- | --- |
| small answer, 14 rows, before | 0.35 ms | 139 | 1.54 ms | 0.63 |
| small answer, after | 0.03 ms | 84 | 1.24 ms | 0.84 |
| 1.7 MB of JSON, 20,000 rows, before | 450 ms | | 455 ms | 0.20 |
| the same, after | 8 ms | | 96 ms | 0.78 |

- Kept: an object is asked whether it is a Blob or a buffer, which throws for all others, only if its prototype lets it
  be one. Three caught exceptions for each object were nearly all of the time: 20,000 rows 450 → 8 ms (`JSON.stringify`
  alone: 3).
- Kept: members are copied by spreading (`{ ...value }`), natively and each read once; the place of a value is a stack
  that only a finding copies.
- Kept: in Python one look without places, level by level, tells answers that can hold no content; the search is for
  the others, and long texts are looked for only if there may be some: for 20,000 rows that was 58 ms of the event loop,
  under a profiler.
- Not done: `JSON.stringify` of the app's own objects after a look at them. It calls getters and `toJSON` a second time,
  so that what was looked at is not what is sent, and saves 4 of 96 ms at most.
- What is left of a small call, in turns: the bare command 1.10 ms, the agent's call over the same channel 1.04, with a
  deadline and the end of the page 1.08, as a request with side effects 1.17, with id, checks and result 1.30. Run
  hot, Python's part takes about 50 µs; between two answers of the browser the processor's caches are cold.
- Lost: the call without a task of its own (`asyncio.timeout`): a third fewer turns of the event loop, but Playwright
  reads the stack of each call, which is then deeper: 1.31 against 1.37 ms, and no difference in processor time.
- Kept: the end of the work itself wakes its caller, not a callback of its task (`asyncio.wait`): two turns of the event
  loop after an answer instead of three, each of which costs a look at all sockets; one timer for all waits of a page;
  calls without files are not prepared by a generator. Processor time above the bare command: 160 → 130 µs.
- Kept: an ArrayBuffer is asked for before a Blob, a view before both: a small file is packed in 34 instead of 72 µs,
  the first time after a pause. Without a store it is described without a staged file (26 → 19 µs, hot). A file of 1 KB:
  0.92 → 1.01 of `evaluate`, medians of three runs in turns; processor time 594 → 543 µs.
- Kept in part, since work on a page has a task of its own again: a call waits in its caller's own task, in which its
  deadline or the end of its page cancels what it waits for. The command is written in the turn of the event loop in
  which it is asked for, and its answer is there one turn after it came (before: one later each). What only content,
  side effects and very long answers need is not begun for an answer without them in the page. Python functions of a
  call, all libraries together: 378 → 325 (ours 92 → 88, asyncio's 121 → 85). Processor time above a client that does
  nothing, run hot on a busy machine, the least of many: 105 → 84 µs. In turns on that machine (four turns, median of
  what the kit takes more than the bare command): before the command is written 174 → 106 µs, in the page 118 → 81,
  after the answer 163 → 142.
- Kept: the work begins with a stack that ends at the event loop. Playwright reads the stack of each call, 1 µs or more
  for each function of the caller's that is on it: without this, the time before the command is written was longer than
  that of a task (183 against 148 µs in one turn).
- Lost: the look at an answer by functions that loop in C (`chain`, `map`), 12.7 µs for 14 rows where the plain loop
  takes 7.5.
- Not reached: 0.85 of the bare command for sure (0.83-0.85, before 0.81-0.83). Of the 130 µs, 25 are the task and its
  deadline, 45 the id, the side effects and reading the reply, 65 the session and the result. Playwright's own 260 µs
  of each command (the stack, validators, copies of what is sent and received) are in the baseline too.
- Lost: the text as base64 (70 against 68 ms for 1.7 MB), with other quotes so that no layer escapes them (115), as a
  stream of a Blob (72; 27 against 28 at 0.9 MB), as a file from 1 MB on (no difference): what costs is the way through
  the driver.
- Not done: a debugging port of the browser's beside the driver's pipe. It would let every process of the machine drive
  the browser.

**A connection of our own to Chromium**, beside Playwright's driver on the same debugging pipe, without a port: the
program that Playwright starts hands the driver's two descriptors over (`SCM_RIGHTS`) and becomes the browser, our event
loop forwards the messages of both sides and has sessions of its own, which the driver never sees. In turns with the
present way on a machine of two cores with a load of 5 to 20 from others: all times are far above those of the tables
above, and only ratios count. Several figures in a cell are the medians of as many runs:

| | now | own connection | |
| --- | --- | --- | --- |
| small call, store `none:` | 1.62, 3.01, 3.25 ms | 1.01, 1.56, 1.27 ms | 0.62, 0.52, 0.39 of the time |
| the fastest of these calls | 1.16, 1.47, 1.11 ms | 0.68, 0.72, 0.68 ms | 0.59, 0.49, 0.62 |
| one bare command | 1.38, 1.99, 2.26 ms | 0.65, 0.82, 0.87 ms | 0.47, 0.41, 0.38 |
| its processor time, our process and driver | 1.15, 1.98, 1.88 ms | 0.53, 0.66, 0.60 ms | 0.46, 0.33, 0.32 |
| 64 small calls at once over 8 sessions | 214, 483 a second | 469, 1,094 | 2.2×, 2.3× |
| `pool.map`, 4 sessions, `none:` | 119, 91 a second | 168, 119 | 1.4×, 1.3× |
| `pool.map`, 4 sessions, default store | 88 a second | 112 | 1.3× |
| `abp batch run`, 600 jobs, 8 sessions, whole process | 23 a second | 24 | nothing to be measured |
| 1.8 MB of JSON | 144, 320, 375 ms | 144, 256, 275 ms | 1.0, 0.8, 0.7 |
| browser started and closed again | 3.8 s | 3.7 s | nothing to be measured |
| session opened in a running browser | 2.1 s | 2.1 s | nothing to be measured |
| memory with 8 sessions, then after 10 tables of 1.8 MB | 1,182, 1,260 MB | 1,132, 1,124 MB | one look |

- Lost: it was to be taken if a small call fell below 0.5 ms and a pool did 1.5 times as many. The call may: of 0.85 ms
  on a quiet machine these ratios make 0.33 to 0.53. The pool does not: of the 12.7 ms of the processor that a job of
  `pool.map` took here, 2.5 were ours and the driver's, 10.2 the browser's, most of them the app's work (an answer of
  the 64 at once, which the app has ready, takes the browser 1.1 to 1.5). A batch also has its store and its ledger.
- What it costs: 482 lines for the start, the forwarding and the sessions, and 28 where browsers and pages are opened,
  before any test or document; a second way into Chromium beside Playwright's, which attached browsers and Windows need
  all the same; all of the driver's own traffic on our event loop, also while pages only load.
- What held: the death of browser, driver or renderer ended calls with the errors of today; theirs and that of our own
  process left no process, and what lived on had no descriptor more and no port. A thread that forwards when the loop
  has not for 50 ms costs no time that could be measured. Calls beside an `evaluate` of 8 MB: 68, the worst 289 ms,
  against 19 and 704, as they do not wait for the driver.
- What did not: a process that has changed its user, and may no longer run its own interpreter, started no browser. 8
  sessions opened at once missed their 30 seconds one time, with the machine's load at 29, for a reason that was not
  found; six more rounds did not.
- Not measured: a quiet machine, macOS, messages of 100 MB. The tests of `tests/playwright` passed but for that one and
  for three whose stand-in lacks a folder, the first 60 of `tests/e2e` until the time was up; the whole suite never ran.

**Page → file**, 64 MB. A raw download over CDP takes 47 ms until the page has answered (40 of them the copy into a
blob), 53 until the browser begins (the blob goes from the page to the browser), 105 until it has written; SHA-256 of
the file 49 more.

- Kept: the hash behind the browser's writer. Chromium first writes to a hidden file in its folder for temporary files,
  and calls it `<guid>.crdownload` only when the writer pauses: in 3 of 4 downloads after the last byte. So the hidden
  file is linked to the staged path as soon as it is there. From 0.73 of the limit to 1.04 (512 MB: 1.21).
- Kept: one call in the page instead of URL, click and revoking; garbage collected beside the answer; slices of content
  over 400 MB appended and hashed beside the next.
- Kept: what was hashed is synced every 16 MB, so that the last sync has little to do: 310 ms against 367 at the best,
  medians 455 against 674, on a machine busier still. Without hash and sync behind the writer, the call takes 1.10, 1.16
  and 1.47 times as long (medians of 30, 8 and 12 pairs on a busy machine).
- Kept: the harness of an embedded app on the app's own site, 1.06 and 0.92 of the speed of a page in two runs; on
  another site 0.80 and 0.66.
- Lost: a blob put together from parts of 4, 8, 16 or 32 MB, whose way to the browser begins while the page copies the
  rest: 180-185 ms at the best against 191, medians 201-222 against 202.
- Lost: following `<guid>.crdownload` alone, 216 ms against 232 hashed afterwards at the best, medians 264 against 254.
- Not done: several downloads at once for one content. Chromium drops more than ten a second, and the parts would have
  to be copied into one file.

**Small answers into the default store** (`ABP_DURABILITY=process`), each another content:

- Dropped: one thread for each event loop, with its folders kept open, that took all waiting answers in one visit. It
  saved 0.1 to 0.3 ms of an artifact, four paired runs on a busy machine: 0.5-1.0 ms against 0.7-1.8 one after the
  other, 0.3-1.0 against 0.9-1.6 with 64 at once. Nobody waits for that, and it was 120 lines with a queue, a cache and
  a lock that could not be waited for.
- Lost: `O_TMPFILE` and a link from `/proc/self/fd`: 10-17 µs a file, as much as making, linking and unlinking one.
- Not done: the lock of a content taken on its folder instead of a file, two system calls less: NFS locks no folder.
  Locks kept open: there are 256, and a small answer seldom meets one that is open.
- Kept: content in one folder instead of 256 by its first digits, as its metadata and names always were. Most of the
  first 600 artifacts of a store made such a folder (11-53 µs) and had its parent synced (126-179): answers of a page in
  a new store, in turns on a busy machine, 3.7 → 3.0 ms where `none:` takes 1.6, processor time 2.2 → 1.75. Later ones
  save the folder's opening and closing: 253 → 231 µs of the processor for a put (medians of five, on a disk at rest).
- Where a stored answer of a page spends what `none:` does not (on a disk at rest 0.55-0.65 of 2.05 ms): 85 µs on the
  event loop until the thread is called, 45-100 until it runs, 200 there (98 of them 18 system calls: 28 for two
  new files, 16 for the content and metadata written, 11 for two links, 7 for the rename; 22 for questions that are
  answered with no), 25-60 until the loop hears of it, 25 until the call goes on. In a row, the same put takes half of
  each: between two answers of the browser the caches are cold and the other processor sleeps.
- What a new file costs is the disk's: 5-6 µs at rest, 60 to 350 in a temp folder where tests and browsers make and
  remove files on ext4 without a journal, which looks at each file that was removed there in the last minutes before it
  takes its place. Then two thirds of the thread's time are these two files: the same store 0.75 of `none:` at rest, and
  0.50-0.63 so.
- Lost: these two files made ahead, without a name (`O_TMPFILE`), while the thread waits for more: 0.63-0.67 → 0.68-0.73
  on such a disk, but at rest each call takes 0.57-0.60 instead of 0.39-0.43 ms of the processor more than with `none:`,
  and the loop hears of the answer 40 µs later: the thread and the loop want the interpreter's lock at the same moment,
  also if the thread pauses before. With names they would also stand in the way of a caller who removes the folder.
- Nothing to be measured: the store's folders put away from those beside them (ext4's flag for that, `chattr +T`): 0.62
  and 0.67 against 0.58 and 0.68 in turns.
- Not done: what an artifact says of its call put together once for a session: the description takes 14 µs, of which 5
  are the redaction, and each call has an id of its own in it.
- Not done: metadata and content in one file. The readable file is the content itself, so there are two files.
- Not done: the disk's commits (`fsync`) of several files shared in one step. It needs the locks of all of them at once.
- Kept: the index is made of metadata that is checked by compiled code where it is as the store writes it (3 µs a
  file), with the garbage collector paused and the file open once: 56 → 22 µs an artifact, of which 9 are reading it
  and 6 SQLite's.
- Kept: a list compares the time of change of the metadata's folder, and reads its names only if it is another: 1,000 of
  100,000 artifacts in 19 instead of 165 ms.
- Kept: a long list asks the index once. It read all rows twice (once to see that they are many), and all inodes: 10.1 →
  6.1 µs of the processor for each of 50,000, with the garbage collector paused; reading one small file takes 10.
- Kept: a checkpoint of the index every 40 MB instead of 4, half as many waits for the disk (18 → 9 for 30,000 rows).
- Not done: the table's second index made after its rows, 7.8 → 6.7 µs of the processor for a row of an empty index: it
  would be missing after a crash in between.
- Lost: rows written by a second thread in statements of 500, beside the reading: 1 µs more of the processor for each,
  and no gain in time that was larger than the noise.
- Lost: looking for what is not plain in metadata by one regular expression: 62 µs, where four questions take 1.

**Large WebSocket messages**, 64 MB as base64 JSON, received alone, best of five:

| engine | speed | processor time | longest pause of the loop |
| --- | --- | --- | --- |
| `websockets` | 136 MB/s | 171 ms | 99 ms |
| ours: a buffered protocol below its connection | 191 MB/s | 68 ms | 7.0 ms |
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

**Opening**, answers of the browser that a new session waits for one after the other, from the context to the list of
capabilities: 19 → 11, of 36 commands (bare Playwright: 5 of 5). Beside a busy machine, in turns with bare Playwright:

| | bare | the kit |
| --- | --- | --- |
| alone, the whole Chromium, before | 702 ms | 757 ms |
| alone, the headless shell | 308 ms | 325 ms |
| 8 at once, the headless shell, each | 257 ms | 261 ms |
| processor time of the browser for one, the headless shell, before | 338 ms | 354 ms |
| the same, Python, before | 18 ms | 27 ms |

- Kept: commands that do not need each other's answers are sent together: 29 → 20 ms between the page and `goto`. The
  address of the server is asked for while the app is looked for.
- Lost: Chromium's headless shell for headless sessions. A page costs it 0.34 s of the processor instead of 1.0, but it
  prints an embedded app only as far as its frame shows it, and six of 132 tests of side effects, pages and embedding
  fail in it. `ABP_BROWSER=chromium-headless-shell` takes it for who needs none of that.
- Kept: settings of the browser itself (17 permissions, the folder of downloads, file choosers) are sent while the
  agent is installed, and their answers come while the app loads, as the browser takes commands in order: one round trip
  less before the navigation, and two commands are no longer waited for one after the other.
- Not done: fewer commands for the permissions. One command can deny all, but then it denies access to the local network
  too, without which no app of this machine loads.
- Not done: a context with a page kept ready in each browser. It would hide 45 ms of 300 from a session that comes
  alone, costs a renderer that may never be used, and gives nothing to sessions that are opened at once: the browser's
  processor time is the limit, and nine tenths of it are the app's page itself.
- Not done: `initialize` and the list of capabilities in one command: 2 ms less, and a list that hangs would hold up
  the handshake.

**Starting up**, processor time in fresh processes, and a whole `abp call` with the whole Chromium:

| | before | after | bare Playwright |
| --- | --- | --- | --- |
| `from transports import connect` | 270 ms | 112 ms | 79 ms |
| `abp call`, from start to end | 2.27 s | 1.64 s | 1.40 s (before: 1.75 s) |
| the same, processor time | 1.95 s | 1.52 s | 1.33 s (before: 1.40 s) |

- Kept: settings are read without pydantic (50 ms of an import, 10 ms of each `connect()`); its models and the HTTP
  client, 160 ms, are imported in a thread while the browser starts.
- Kept: a Chromium without a profile is killed at its end: 60 ms instead of 220.
- Kept: only the module of the command that is called is imported, and `abp --help` imports none (130 → 87 ms); at the
  end of the process Python does not look for garbage in all modules once more (90 → 18 ms).
- Kept: no HTTP client with `connect` (18 ms of its import); most answers have no download.
- Dropped: reading texts and paths of the command line without pydantic, past the API of Typer 0.29, which reads each
  value with a model of pydantic: 30 ms of a command, where the import of fewer modules saves as much.
- Kept: that thread begins when the driver was started, or after 30 ms: it takes the interpreter's lock from the code
  that starts it. Together 295 → 235 ms of the processor until the driver starts.
- Kept: the driver's scripts compiled, in a folder of the user's (`NODE_COMPILE_CACHE`): 325 → 280 ms of the processor
  until the browser runs.
- Not done: a driver that is started before the command line is read. It would win about 0.1 s and needs a browser
  that is started before it is known whether one is wanted.
- Kept: `connect` without the checks of schemas and of file names (`jsonschema_rs`, `pathvalidate`) and HTML's table of
  characters: a session imports them in its thread. 111 → 103.5 ms of the processor, of which Playwright alone takes
  73.5: from 1.51 to 1.41 of it. The command line, also without the packages' metadata: 91 → 81 ms.
- Kept: the command line starts the driver when it has read its arguments, and imports the session while the driver
  starts: 260 → 212 ms of the processor until the driver runs (a program of Playwright alone: 111), on a busy machine.
- Kept: a browser that one session had for itself is killed at its end again. The session's context was still open, and
  was taken for a caller's, which may record a video: the browser was given the 0.2 s to end by itself.
- These three together, a whole `abp call` in turns, medians of nine: 1.41 → 1.20 s, Playwright alone 1.16: from 0.82 to
  0.97 of it. Processor time 1.39 → 1.23 s, Playwright alone 1.07.
- Not done: no collection of garbage while `connect` is imported, 8 of 123 ms; Playwright's own import would win as
  much by it, and it is the program's to decide.
- Kept: `abp --help` makes no parameters of the commands that it lists: 145 → 121 ms, medians of 15.
- Kept: patterns that few starts need are compiled at their first use: 42 of 107 that `connect` compiled, 10.5 → 8 ms.
- Not reached by less: 65 dataclasses take 24 of the 100 ms of `connect`, 0.3 to 0.9 each, as Python 3.11 compiles their
  methods at each start. They are the public values (`Result`, `ArtifactRef`, `RoutingPolicy`).

**The gallery**, 60 more cards beside 3,000, the longest task of the page in processor time on a busy machine:

- Kept: cards off the screen are not laid out (`content-visibility: auto`): 86 → 54 ms, the next ones 68 to 78 → 38 to
  44. With 540 cards it was 25.
- Kept: pictures and first lines are read for cards that stay near the screen for 0.12 s. Scrolled through at 240 pixels
  a frame, 620 cards of a store of 100,000 artifacts, each asked for its preview when it came near: the longest frame of
  each round was 52 to 75 ms, now 27 to 37. Without any previews it was 31 to 41.
- Lost: twelve cards made in one frame instead of sixty: 23 to 30 ms, within the spread. Cards off the screen laid out
  after all, with `contain` in its place: 48 to 71 ms instead of 52 to 72.
"""
