// Codec of binary content: packs an app's answer into one JSON text and a list of its content, and inserts content into
// parameters. A function expression; agent.js passes native functions that it saved before the app's first script ran.
(natives) => {
  "use strict";
  const { stringify, rawJSON, isView, toBase64, fromBase64, isBlob, isBuffer, isShared } = natives;
  const { keys, getPrototypeOf, defineProperty, create, prototype: plainPrototype } = Object;
  const { isArray, prototype: { map } } = Array, { isFinite } = Number, { apply } = Reflect;
  const { toString: sourceOf } = Function.prototype;
  const MAX_DEPTH = 64;

  class UnsupportedAnswer extends Error {}

  // "Promise", "Response", "HTMLDivElement"; "Object" for plain objects and those of the app's own classes. This may call
  // code of the app, which may throw or return a text of any length.
  const kindOf = (value) => {
    try { return apply(plainPrototype.toString, value, []).slice(8, -1).slice(0, 60); } catch { return "Object"; }
  };

  // Returns whether an object without own members may hold data all the same, as instances of the browser's classes do
  // (Response, Map Iterator), and of classes derived from them. The last prototype is Object's and does not count.
  const holdsMore = (value) => {
    try {
      for (let proto = getPrototypeOf(value), next; proto && (next = getPrototypeOf(proto)); proto = next) {
        const made = proto.constructor;
        if (typeof made === "function" && /\[native code\]\s*\}$/.test(apply(sourceOf, made, []))) return true;
      }
    } catch { /* a getter or a trap of the app's */ }
    return false;
  };

  // Returns [kind, value] for binary content: "view" with a Uint8Array over exactly its bytes, "blob" with a Blob,
  // "broken" with the reason why there are no bytes. Returns undefined for anything else.
  const content = (value) => {
    try {
      if (isView(value)) {
        if (value.buffer.detached) return ["broken", `a ${value.constructor.name} on a detached ArrayBuffer`];
        const view = new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
        return ["view", isBuffer(value.buffer) ? view : view.slice()];
      }
      // The likelier check comes first, as a failed check costs a caught exception.
      const blobFirst = !("byteLength" in value);
      if (blobFirst && isBlob(value)) return ["blob", value];
      if (isBuffer(value)) {
        if (value.detached) return ["broken", "a detached ArrayBuffer (it was transferred away)"];
        return ["view", new Uint8Array(value)];
      }
      if (isShared(value)) return ["view", new Uint8Array(value).slice()];
      if (!blobFirst && isBlob(value)) return ["blob", value];
    } catch (error) {
      return ["broken", String(error && error.message || error)];
    }
    return undefined;
  };

  // ImageData: RGBA pixels are not a file, so they stay data.
  const isPixels = (value) =>
    typeof value.width === "number" && typeof value.height === "number" &&
    value.data instanceof Uint8ClampedArray && value.data.length === value.width * value.height * 4;

  // Returns whether content() is worth calling: for other values it throws inside, which is a hundred times slower than
  // this check. Content has a byteLength or a size from its prototype, or, if a script gave it a plain prototype, no own
  // members.
  const mayBeContent = (value) => {
    if (isView(value)) return true;
    const prototype = getPrototypeOf(value);
    if (prototype === plainPrototype || prototype === null) return keys(value).length === 0;
    return "byteLength" in prototype || "size" in prototype;
  };

  // Returns {json, found: [{path, kind, value}], warnings}. Throws UnsupportedAnswer for cycles and deep nesting.
  const pack = (answer) => {
    const found = [], warnings = [];
    const steps = [];  // path to the value being copied; only the first `depth` keys are valid
    const open = [];   // its ancestors, outermost first; only the first `opened` are valid
    let opened = 0;
    const pathOf = (depth) => steps.slice(0, depth);
    const warn = (depth, text) => { if (warnings.length < 20) warnings.push(`${pathOf(depth).join(".") || "answer"}: ${text}`); };

    const list = (items, depth) => apply(map, items, [(item, index) => {
      steps[depth] = index;
      const copied = copy(item, depth + 1);
      return copied === undefined ? null : copied;
    }]);

    // Spread syntax reads each member once, makes "__proto__" a plain key and calls no setter.
    const object = (value, depth) => {
      let out;
      try { out = { ...value }; } catch { return unreadable(value, depth); }
      for (const key of keys(out)) {
        const member = out[key];
        steps[depth] = key;
        const copied = copy(member, depth + 1);
        if (copied !== member) out[key] = copied; // JSON leaves undefined out
      }
      const kind = keys(out).length === 0 ? kindOf(value) : "Object";
      if (kind === "Promise") warn(depth, "a Promise cannot be sent and became {}; await it");
      else if (kind !== "Object" && holdsMore(value)) warn(depth, `the members of a ${kind} cannot be sent; it became {}`);
      return out;
    };
    // Copies an object with a getter that throws, without that member.
    const unreadable = (value, depth) => {
      const out = {};
      for (const key of keys(value)) {
        steps[depth] = key;
        let member;
        try { member = value[key]; } catch (error) {
          warn(depth + 1, `reading it threw ${error}`);
          continue;
        }
        defineProperty(out, key, { value: copy(member, depth + 1), enumerable: true, configurable: true, writable: true });
      }
      return out;
    };

    const inside = (value, depth) => {
      if (isArray(value)) return list(value, depth);
      if (value instanceof Set) return list([...value], depth);
      if (value instanceof Map) {
        const members = create(null);
        for (const [key, member] of value) members[String(key)] = member;
        return object(members, depth);
      }
      if (value instanceof Error) return { name: value.name, message: value.message };
      if (isPixels(value)) return { width: value.width, height: value.height, data: [...value.data] };
      if (typeof value.toJSON === "function") {
        const replaced = value.toJSON();
        return replaced === value ? object(value, depth) : copy(replaced, depth);
      }
      return object(value, depth);
    };
    const nested = (value, depth) => {
      if (depth > MAX_DEPTH) throw new UnsupportedAnswer(`the answer is nested deeper than ${MAX_DEPTH} levels`);
      for (let index = 0; index < opened; index += 1) {
        if (open[index] === value) throw new UnsupportedAnswer(`the answer holds itself at ${pathOf(depth).join(".")}`);
      }
      open[opened] = value;
      opened += 1;
      const copied = inside(value, depth);
      opened -= 1;
      return copied;
    };

    const copy = (value, depth) => {
      switch (typeof value) {
        case "string":
          if (value.isWellFormed()) return value;
          warn(depth, "half of a surrogate pair was replaced by U+FFFD");
          return value.toWellFormed();
        case "number":
          if (isFinite(value)) return value;
          warn(depth, `${value} is no JSON number and became null`);
          return null;
        case "bigint": return rawJSON(value.toString());
        case "boolean": case "undefined": return value;
        case "function": case "symbol":
          warn(depth, `a ${typeof value} cannot be sent and was left out`);
          return undefined;
      }
      if (value === null) return null;
      const leaf = mayBeContent(value) ? content(value) : undefined;
      if (leaf === undefined) return nested(value, depth);
      found.push({ path: pathOf(depth), kind: leaf[0], value: leaf[1] });
      return null;
    };

    const copied = copy(answer, 0);
    return { json: stringify(copied === undefined ? null : copied), found, warnings };
  };

  // Puts content into the parameters of a call: contents is [[path, bytes], …].
  const insertContent = (params, contents) => {
    const root = { top: params };
    for (const [path, bytes] of contents) {
      let node = root, key = "top";
      for (const step of path) { node = node[key]; key = step; }
      node[key] = bytes;
    }
    return root.top;
  };

  return { pack, insertContent, toBase64, fromBase64, UnsupportedAnswer };
}
