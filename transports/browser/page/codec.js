// Turns an app's answer into one JSON text plus a list of the binary content in it, and inserts content into parameters.
// A function expression; agent.js passes the native functions that it saved before the app's first script ran.
(natives) => {
  "use strict";
  const { stringify, rawJSON, isView, toBase64, fromBase64, isBlob, isBuffer, isShared } = natives;
  const MAX_DEPTH = 64;

  class UnsupportedAnswer extends Error {}

  // Returns [kind, value] for binary content: "view" with a Uint8Array over exactly the bytes meant, "blob" with a Blob,
  // "broken" with the reason why there are no bytes. Returns undefined for anything else.
  const content = (value) => {
    if (isBlob(value)) return ["blob", value];
    try {
      if (isBuffer(value)) {
        if (value.detached) return ["broken", "a detached ArrayBuffer (it was transferred away)"];
        return ["view", new Uint8Array(value)];
      }
      if (isShared(value)) return ["view", new Uint8Array(value).slice()];
      if (isView(value)) {
        if (value.buffer.detached) return ["broken", `a ${value.constructor.name} on a detached ArrayBuffer`];
        const view = new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
        return ["view", isShared(value.buffer) ? view.slice() : view];
      }
    } catch (error) {
      return ["broken", String(error && error.message || error)];
    }
    return undefined;
  };

  // ImageData: RGBA pixels are not a file, so they stay data.
  const isPixels = (value) =>
    typeof value.width === "number" && typeof value.height === "number" &&
    value.data instanceof Uint8ClampedArray && value.data.length === value.width * value.height * 4;

  // Returns {json, found: [{path, kind, value}], warnings}. Throws UnsupportedAnswer for cycles and deep nesting.
  const pack = (answer) => {
    const found = [], warnings = [], ancestors = new Set();
    const warn = (path, text) => { if (warnings.length < 20) warnings.push(`${path.join(".") || "answer"}: ${text}`); };

    const list = (items, path) => items.map((item, index) => {
      const copied = copy(item, path.concat(index));
      return copied === undefined ? null : copied;
    });

    const object = (value, path, keys) => {
      const out = {};
      for (const key of keys) {
        let member;
        try { member = value[key]; } catch (error) {
          warn(path.concat(key), `reading it threw ${error}`);
          continue;
        }
        const copied = copy(member, path.concat(key));
        if (copied !== undefined) {
          // "__proto__" must become a key, not a prototype.
          Object.defineProperty(out, key, { value: copied, enumerable: true, configurable: true, writable: true });
        }
      }
      return out;
    };

    const nested = (value, path) => {
      if (path.length > MAX_DEPTH) throw new UnsupportedAnswer(`the answer is nested deeper than ${MAX_DEPTH} levels`);
      if (ancestors.has(value)) throw new UnsupportedAnswer(`the answer holds itself at ${path.join(".")}`);
      ancestors.add(value);
      try {
        if (Array.isArray(value)) return list(value, path);
        if (value instanceof Set) return list([...value], path);
        if (value instanceof Map) {
          const members = Object.create(null);
          for (const [key, member] of value) members[String(key)] = member;
          return object(members, path, Object.keys(members));
        }
        if (value instanceof Error) return { name: value.name, message: value.message };
        if (isPixels(value)) return { width: value.width, height: value.height, data: [...value.data] };
        if (typeof value.toJSON === "function") {
          const replaced = value.toJSON();
          return replaced === value ? object(value, path, Object.keys(value)) : copy(replaced, path);
        }
        return object(value, path, Object.keys(value));
      } finally {
        ancestors.delete(value);
      }
    };

    const copy = (value, path) => {
      switch (typeof value) {
        case "string":
          if (value.isWellFormed()) return value;
          warn(path, "half of a surrogate pair was replaced by U+FFFD");
          return value.toWellFormed();
        case "number":
          if (Number.isFinite(value)) return value;
          warn(path, `${value} is no JSON number and became null`);
          return null;
        case "bigint": return rawJSON(value.toString());
        case "boolean": case "undefined": return value;
        case "function": case "symbol":
          warn(path, `a ${typeof value} cannot be sent and was left out`);
          return undefined;
      }
      if (value === null) return null;
      const leaf = content(value);
      if (leaf === undefined) return nested(value, path);
      found.push({ path, kind: leaf[0], value: leaf[1] });
      return null;
    };

    const copied = copy(answer, []);
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
