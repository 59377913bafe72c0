"""Answers of a page: what becomes of each kind of value that JavaScript has, and how much work a small answer takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import transports
from tests.support.processor import counted_calls
from transports import Browser, connect
from transports.playwright._scripts import load_script
from webapp_fixture import Fixture

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

#: Packs the value of each expression; ``looks`` counts how often a value was asked whether it is content, ``denied``
#: how often the answer was no, which is an exception inside.
_PACK = """(makeNatives, makeCodec, sources) => {
  let looks = 0, denied = 0;
  const asked = (getter) => (value) => {
    looks += 1;
    try { return getter(value); } catch (error) { denied += 1; throw error; }
  };
  const natives = makeNatives(false), { blobSize, bufferByteLength } = natives;
  const counting = { ...natives, blobSize: asked(blobSize), bufferByteLength: asked(bufferByteLength) };
  const codec = makeCodec(counting);
  return sources.map((text) => {
    looks = denied = 0;
    const value = (0, eval)(`(${text})`);
    try {
      const { json, found, warnings } = codec.pack(value);
      const asks = { looks, denied };
      const content = found.map(({ path, kind, value }) =>
        [path, kind, kind === "view" ? [...value] : kind === "blob" ? blobSize(value) : value]);
      return { json, found: content, warnings, ...asks };
    } catch (error) { return { json: null, threw: `${error.message}`, found: [], warnings: [], looks }; }
  });
}"""


def _shrunk(kind: str) -> tuple[str, list[object]]:
    made = f"((b) => [b, new {kind}(b, 4)])(new ArrayBuffer(8, {{ maxByteLength: 8 }}))"
    reason = f"a {kind} out of the bounds of its ArrayBuffer, which was made smaller"
    return f"((b, v) => (b.resize(1), v))(...{made})", [[[], "broken", reason]]


def unsent(place: str, kind: str) -> str:
    return f"{place}: a {kind} cannot be sent and became {{}}; send a Blob, an ArrayBuffer or JSON"


_DEEP = "(n => {{ let v = 1; while (n--) v = {wrap}; return v; }})({depth})"
#: An expression, the JSON of it, and the warnings about it.
_DATA: list[tuple[str, object, list[str]]] = [
    ("null", None, []),
    ("undefined", None, []),
    ("'text'", "text", []),
    ("[1, -0, 1.5, 1e21, true, false, null]", [1, 0, 1.5, 1e21, True, False, None], []),
    ("2n ** 70n", 2**70, []),
    ("{ big: [-5n, { n: 0n }] }", {"big": [-5, {"n": 0}]}, []),
    ("[NaN]", [None], ["0: NaN is not a JSON number and became null"]),
    ("{ a: { b: -Infinity } }", {"a": {"b": None}}, ["a.b: -Infinity is not a JSON number and became null"]),
    ("Infinity", None, ["answer: Infinity is not a JSON number and became null"]),
    ("{ a: undefined, b: [undefined, , 1] }", {"b": [None, None, 1]}, []),
    (
        "{ f() {}, s: Symbol(), list: [() => 0] }",
        {"list": [None]},
        [f"{place}: a {kind} cannot be sent and was left out" for place, kind in
         (("f", "function"), ("s", "symbol"), ("list.0", "function"))],
    ),
    ("'a\\ud834b'", "a\ufffdb", ["answer: half of a surrogate pair was replaced by U+FFFD"]),
    ("['\\u{1d11e}', '\\udd1e']", ["\U0001d11e", "\ufffd"], ["1: half of a surrogate pair was replaced by U+FFFD"]),
    ("new Date(0)", "1970-01-01T00:00:00.000Z", []),
    ("new Date(NaN)", None, []),
    ("new Map([['a', new Map([[1, 'x']])], ['__proto__', 2]])", {"a": {"1": "x"}, "__proto__": 2}, []),
    ("new Set([1, new Set(['x']), undefined])", [1, ["x"], None], []),
    ("[new TypeError('no')]", [{"name": "TypeError", "message": "no"}], []),
    ("JSON.parse('{\"__proto__\": {\"x\": 1}, \"constructor\": 2}')", {"__proto__": {"x": 1}, "constructor": 2}, []),
    ("JSON.parse('{\"__proto__\": null, \"a\": [NaN]}'.replace('NaN', '1'))", {"__proto__": None, "a": [1]}, []),
    ("Object.create(null, { a: { value: 1, enumerable: true }, b: { value: 2 } })", {"a": 1}, []),
    ("Object.create({ inherited: 1 }, { own: { value: 2, enumerable: true } })", {"own": 2}, []),
    ("new (class Row { id = 1; get twice() { return 2; } })()", {"id": 1}, []),
    ("[new String('ab'), new Number(3), new Boolean(true), Object(2n ** 70n)]", ["ab", 3, True, 2**70], []),
    ("new Map([[new String('k'), new Map([['x', new (class extends Number {})(7)]])]])", {"k": {"x": 7}}, []),
    ("[new Number(NaN), new (class extends String { toString() { return 'mine'; } })('ab')]", [None, "mine"],
     ["0: NaN is not a JSON number and became null"]),
    ("[Object.assign(new Number(1), { toJSON: () => 'own' })]", ["own"], []),
    ("[Object.assign(new Error('no'), { toJSON: () => ({ code: 'E1' }) })]", [{"code": "E1"}], []),
    ("Object(Symbol())", {}, [unsent("answer", "Symbol")]),
    ("[new (class { get [Symbol.toStringTag]() { return 'String'; } a = 1 })()]", [{"a": 1}], []),
    ("""((f) => {
       document.documentElement.append(f);
       const { String, Number, Boolean, Map, Set, Error, Object } = f.contentWindow;
       return [new String("a"), new Number(1), new Boolean(false), new Map([["k", 1]]), new Set([2]), new Error("e"),
         new Object()];
     })(document.createElement("iframe"))""",
     ["a", 1, False, {"k": 1}, [2], {"name": "Error", "message": "e"}, {}], []),
    ("new Proxy(new Map([['a', 1]]), { get: (map, key) => key === 'forEach' ? map[key].bind(map) : map[key] })",
     {"a": 1}, []),
    ("new Map([[{}, 1], [{}, 2], [Symbol('s'), 3], ['a', 4]])", {"[object Object]": 2, "Symbol(s)": 3, "a": 4},
     ["answer: 1 of its keys are equal to others as text; only the last value of each is kept"]),
    ("new Map([[Object.create(null), 1], ['a', 2]])", {"a": 2},
     ["answer: reading it threw TypeError: Cannot convert object to primitive value"]),
    ("{ 'a\\ud83d': 1, b: { '\\ude00': [NaN] } }", {"a\ufffd": 1, "b": {"\ufffd": [None]}},
     ["b.\ufffd.0: NaN is not a JSON number and became null"]
     + [f"{place}: half of a surrogate pair in this key was replaced by U+FFFD" for place in ("a\ufffd", "b.\ufffd")]),
    (r"{ 'C:\\\\udd00': '\\ud' }", {r"C:\\udd00": r"\ud"}, []),
    ("{ '\\ud83d': 1, '\\ud83e': 2 }", {"\ufffd": 2},
     ["\ufffd: half of a surrogate pair in this key was replaced by U+FFFD"] * 2
     + ["answer: 1 of its keys are equal to others as text; only the last value of each is kept"]),
    ("[new Map([['\\ud83d', 1]]), new Error('\\ud83d')]", [{"\ufffd": 1}, {"name": "Error", "message": "\ufffd"}],
     ["1.message: half of a surrogate pair was replaced by U+FFFD",
      "0.\ufffd: half of a surrogate pair in this key was replaced by U+FFFD"]),
    ("(({ proxy, revoke }) => (revoke(), { good: 1, bad: proxy, list: [2, proxy] }))(Proxy.revocable({}, {}))",
     {"good": 1, "list": [2, None]},
     [f"{place}: reading it threw TypeError: Cannot perform 'getPrototypeOf' on a proxy that has been revoked"
      for place in ("bad", "list.1")]),
    ("{ a: { toJSON() { throw new Error('no'); } }, b: [{ bytes: new Uint8Array(1), toJSON() { throw 5; } }] }",
     {"b": [None]}, ["a: reading it threw Error: no", "b.0: reading it threw 5"]),
    ("{ get a() { throw Object.create(null); } }", {}, ["a: reading it threw an error that cannot be read"]),
    ("{ pdf: Promise.resolve(1) }", {"pdf": {}}, ["pdf: a Promise cannot be sent and became {}; await it"]),
    ("{ r: new Response('x'), e: document.createElement('p') }", {"r": {}, "e": {}},
     [unsent(place, kind) for place, kind in
      (("r", "Response"), ("e", "HTMLParagraphElement"))]),
    ("{ a: 1, b: new (class { get [Symbol.toStringTag]() { throw Error('tag'); } })() }", {"a": 1, "b": {}}, []),
    ("new (class extends Response { get [Symbol.toStringTag]() { return 'T'.repeat(9000); } })()", {},
     [unsent("answer", "T" * 60)]),
    ("[class {}, class extends class {} {}].map((T) => { T.prototype[Symbol.toStringTag] = 'Own'; return new T; })",
     [{}, {}], []),
    ("(function () { return arguments; })()", {}, []),
    ("[[].values(), (function* () {})(), new (class extends WeakMap {})]", [{}, {}, {}],
     [unsent(str(n), kind) for n, kind in
      enumerate(("Array Iterator", "Generator", "WeakMap"))]),
    ("{ rows: { [Symbol.asyncIterator]() {} } }", {"rows": {}},
     ["rows: an async iterator cannot be sent and became {}; send what it gives, as a list or a Blob"]),
    ("{ get p() { return new (class { get [Symbol.toStringTag]() { return 'Promise'; } })(); } }", {"p": {}},
     ["p: a Promise cannot be sent and became {}; await it"]),
    ("{ doc: new (class extends class { #a = 1; get a() { return this.#a; } } {})() }", {"doc": {}},
     ["doc: an object with getters only became {}; send their values, or give its class a toJSON()"]),
    ("[{}, new (class Row {})(), Object.create(null), new Proxy({}, {})]", [{}, {}, {}, {}], []),
    ("{ toJSON: 1, a: 2 }", {"toJSON": 1, "a": 2}, []),
    ("'blob:http://a/1'", "blob:http://a/1", ["answer: only the page can read a blob: URL; send the Blob itself"]),
    ("{ downloadUrl: 'blob:x', more: [{ url: 'blob:y' }, '<a href=blob:z>'] }",
     {"downloadUrl": "blob:x", "more": [{"url": "blob:y"}, '<a href=blob:z>']},
     [f"{place}: only the page can read a blob: URL; send the Blob itself" for place in ("downloadUrl", "more.0.url")]),
    ("[{ downloadUrl: 'blob:x', mimeType: 'text/plain' }]", [{"downloadUrl": "blob:x", "mimeType": "text/plain"}], []),
    ("{ toJSON() { return { a: [NaN] }; } }", {"a": [None]}, ["a.0: NaN is not a JSON number and became null"]),
    ("{ toJSON() { return this; }, a: 1 }", {"a": 1}, ["toJSON: a function cannot be sent and was left out"]),
    ("Object.assign([1], { toJSON: () => 2, more: 3 })", [1], []),
    ("new (class List extends Array {})(1, 2)", [1, 2], []),
    ("((seen) => ({ get a() { return ++seen; }, get b() { return [++seen]; } }))(0)", {"a": 1, "b": [2]}, []),
    (
        "{ a: 1, get b() { throw new Error('no'); }, c: NaN, [Symbol()]: 1 }",
        {"a": 1, "c": None},
        ["b: reading it threw Error: no", "c: NaN is not a JSON number and became null"],
    ),
    ("new Proxy({ a: { b: 1 } }, {})", {"a": {"b": 1}}, []),
    ("((same) => [same, { same }, same])({ a: 1 })", [{"a": 1}, {"same": {"a": 1}}, {"a": 1}], []),
    ("{ width: 1, height: 1, data: new Uint8ClampedArray(4) }", {"width": 1, "height": 1, "data": [0] * 4}, []),
    ("Array.from({ length: 30 }, () => NaN)", [None] * 30,
     [f"{n}: NaN is not a JSON number and became null" for n in range(20)]),
]  # fmt: skip
#: An expression with content, and what is found: path, kind, and its bytes, size or reason.
_CONTENT: list[tuple[str, list[object]]] = [
    ("new Uint8Array([1, 2])", [[[], "view", [1, 2]]]),
    ("new ArrayBuffer(2)", [[[], "view", [0, 0]]]),
    ("[new Uint16Array([258]).subarray(0, 1)]", [[[0], "view", [2, 1]]]),
    ("{ a: { b: new DataView(new ArrayBuffer(3), 1) } }", [[["a", "b"], "view", [0, 0]]]),
    ("{ f: new Blob(['abc']), g: new File(['ab'], 'n') }", [[["f"], "blob", 3], [["g"], "blob", 2]]),
    ("new (class Buffer extends Uint8Array { toJSON() { return 0; } })([7])", [[[], "view", [7]]]),
    ("new (class extends Blob { get size() { return 1; } })(['ab'])", [[[], "blob", 2]]),
    ("new Map([['file', new Uint8Array([1])]])", [[["file"], "view", [1]]]),
    ("{ toJSON: () => ({ x: new Uint8Array([1]) }) }", [[["x"], "view", [1]]]),
    ("Object.setPrototypeOf(new ArrayBuffer(1), null)", [[[], "view", [0]]]),
    ("Object.setPrototypeOf(new Blob(['a']), Object.prototype)", [[[], "blob", 1]]),
    ("Object.setPrototypeOf(new Uint8Array([5]), {})", [[[], "view", [5]]]),
    ("new ArrayBuffer(2, { maxByteLength: 9 })", [[[], "view", [0, 0]]]),
    ("new Uint8Array(new ArrayBuffer(3, { maxByteLength: 9 }), 1)", [[[], "view", [0, 0]]]),
    ("new Uint8Array(0)", [[[], "view", []]]),
    *(_shrunk(kind) for kind in ("Uint8Array", "Float32Array", "DataView")),
    ("((b) => (structuredClone(b, { transfer: [b] }), b))(new ArrayBuffer(4))",
     [[[], "broken", "a detached ArrayBuffer (it was transferred away)"]]),
]  # fmt: skip
_REFUSED = [
    ("((a) => (a.b = { a }, a))({})", "the answer holds itself at b.a"),
    ("((a) => (a[0] = a, a))([])", "the answer holds itself at 0"),
    (_DEEP.format(wrap="{ v }", depth=65 + 1), "the answer is nested deeper than 64 levels"),
    (_DEEP.format(wrap="[v]", depth=100_000), "the answer is nested deeper than 64 levels"),
    ("{ toJSON() { throw new Error('no'); } }", "no"),
]
#: Answers as most are, which hold no content: nothing in them is asked for it by an exception that is caught.
_PLAIN = [
    "Array.from({ length: 200 }, (_, id) => ({ id, size: 1, byteLength: 2, tags: ['a'], more: { x: null } }))",
    "Array.from({ length: 200 }, (_, id) => new (class Row { id = id; type = 'row'; })())",
    'JSON.parse(\'[{"a": [[1], {"b": 2}]}]\')',
]


@pytest.mark.fault(21)
async def test_codec_packs_every_kind_of_value(browser: Browser) -> None:
    sources = [
        *(case[0] for case in _DATA),
        *(case[0] for case in _CONTENT),
        *(case[0] for case in _REFUSED),
        _DEEP.format(wrap="[v]", depth=64),
        *_PLAIN,
    ]
    context = await browser.playwright.new_context()
    try:
        page = await context.new_page()
        pack = f"sources => ({_PACK})({load_script('natives.js')}, {load_script('codec.js')}, sources)"
        packed: list[dict[str, Any]] = await page.evaluate(pack, sources)
    finally:
        await context.close()
    outcomes = dict(zip(sources, packed, strict=True))
    for source, data, warnings in _DATA:
        outcome = outcomes[source]
        packed_data = json.loads(outcome["json"] or '"nothing"')
        assert (packed_data, outcome["warnings"], outcome["found"]) == (data, warnings, []), source
    for source, found in _CONTENT:
        assert outcomes[source]["found"] == found, source
        assert outcomes[source]["denied"] == 0 or "setPrototypeOf" in source or "new Map" in source, source
    for source, message in _REFUSED:
        assert outcomes[source]["threw"] == message, source
    assert json.loads(outcomes[_DEEP.format(wrap="[v]", depth=64)]["json"])
    assert [outcomes[source]["looks"] for source in _PLAIN] == [0, 0, 0]


async def test_small_page_call_makes_at_most_175_internal_calls(browser: Browser, fixture: Fixture) -> None:
    """Counted, because time depends on the machine; a coroutine that goes on counts again."""
    async with connect(fixture.url, browser=browser, store="none:") as app:
        for _ in range(3):
            await app.call("data.json", {"csv": "a,b\n1,2"})
        with counted_calls(str(Path(transports.__file__).parent)) as calls:
            for _ in range(5):
                result = await app.call("data.json", {"csv": "a,b\n1,2"})
    assert result.data
    assert calls.count / 5 <= 175
