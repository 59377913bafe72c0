// Codec of binary content: packs an app's answer into one JSON text and a list of its content, and inserts content into
// parameters. A function expression, called with the natives (natives.js).
(natives) => {
  "use strict";
  const {
    String, Uint8Array, bigIntValueOf, blobSize, booleanValueOf, bufferByteLength, bufferDetached, bufferResizable,
    bytesToBase64, dataViewBuffer, dataViewByteLength, dataViewByteOffset, defineProperty, errorPrototype, fromBase64,
    functionToString, getOwnPropertyDescriptor, getPrototypeOf, hasOwn, isArray, isAsyncIterable, isError, isFinite, isFrozen, isView, keys, listForEach, listJoin,
    listPrototype, listPush, mapForEach, mapList, mapPrototype, mapSize, matches, numberValueOf, objectIsPrototypeOf,
    objectToString, ownKeys, plainPrototype, rawJSON, setForEach, setMember, setPrototype, setSize, sharedByteLength, stringify,
    textIncludes, textIsWellFormed, textSlice, textStartsWith, textToWellFormed, textValueOf, typedArrayAt, typedArrayBuffer,
    typedArrayKind, typedArrayLength, typedArrayOffset, typedArraySize, wordsOf,
  } = natives;
  const MAX_DEPTH = 64;

  class UnsupportedAnswer {
    #mark;
    constructor(message) { this.message = message; }
    static is(error) { return typeof error === "object" && error !== null && #mark in error; }
  }

  const hasSlotOf = (getter) => (value) => {
    if (!getter || typeof value !== "object" || value === null) return false;
    try { getter(value); return true; } catch { return false; }
  };
  const isBuffer = hasSlotOf(bufferByteLength), isShared = hasSlotOf(sharedByteLength), isBlob = hasSlotOf(blobSize);
  const isMap = hasSlotOf(mapSize), isSet = hasSlotOf(setSize);
  const isBoxedText = hasSlotOf(textValueOf), isBoxedNumber = hasSlotOf(numberValueOf);
  const isBoxedBoolean = hasSlotOf(booleanValueOf), isBoxedBigInt = hasSlotOf(bigIntValueOf);

  // "Promise", "Response", "HTMLDivElement"; "Object" for plain objects and those of the app's own classes. This may call
  // code of the app, which may throw or return a text of any length.
  const kindOf = (value) => {
    try { return textSlice(textSlice(objectToString(value), 8, -1), 0, 60); } catch { return "Object"; }
  };

  // Returns whether an object without own members may still hold data, as instances of the browser's classes do
  // (Response, Map Iterator), and of classes derived from them. The last prototype is Object's and does not count.
  const holdsMore = (value) => {
    try {
      for (let proto = getPrototypeOf(value), next; proto && (next = getPrototypeOf(proto)); proto = next) {
        const made = proto.constructor;
        if (typeof made === "function" && matches(/\[native code\]\s*\}$/, functionToString(made))) return true;
      }
    } catch { /* a getter or a trap of the app's */ }
    return false;
  };

  // Returns whether a class of the app's gives an object getters, which may read its private fields.
  const hasGetters = (value) => {
    try {
      for (let proto = getPrototypeOf(value), next; proto && (next = getPrototypeOf(proto)); proto = next) {
        const names = ownKeys(proto);
        for (let index = 0; index < names.length; index += 1) {
          if (typeof names[index] === "string" && hasOwn(getOwnPropertyDescriptor(proto, names[index]), "get")) return true;
        }
      }
    } catch { /* a trap of the app's */ }
    return false;
  };

  // The bytes of a buffer that may still change its size are copied: a Blob takes none of these.
  const bytesOf = (buffer, offset, size) => {
    const view = new Uint8Array(buffer, offset, size);
    return isBuffer(buffer) && !bufferResizable?.(buffer) ? view : new Uint8Array(view);
  };
  const contentOfView = (value) => {
    const kind = typedArrayKind(value) ?? "DataView", isTyped = kind !== "DataView";
    const buffer = isTyped ? typedArrayBuffer(value) : dataViewBuffer(value);
    if (isBuffer(buffer) && bufferDetached(buffer)) return ["broken", `a ${kind} on a detached ArrayBuffer`];
    try {
      if (isTyped) typedArrayAt(value, 0);
      else dataViewByteLength(value);
    } catch { return ["broken", `a ${kind} out of the bounds of its ArrayBuffer, which was made smaller`]; }
    return ["view", isTyped ? bytesOf(buffer, typedArrayOffset(value), typedArraySize(value))
      : bytesOf(buffer, dataViewByteOffset(value), dataViewByteLength(value))];
  };
  // Returns [kind, value] for binary content: "view" with a Uint8Array over exactly its bytes, "blob" with a Blob,
  // "broken" with the reason why there are no bytes. Returns undefined for anything else.
  const content = (value) => {
    if (isView(value)) return contentOfView(value);
    // The likelier check comes first, as a failed check costs a caught exception.
    const blobFirst = !("byteLength" in value);
    if (blobFirst && isBlob(value)) return ["blob", value];
    if (isBuffer(value)) {
      if (bufferDetached(value)) return ["broken", "a detached ArrayBuffer (it was transferred away)"];
      return ["view", bytesOf(value, 0, bufferByteLength(value))];
    }
    if (isShared(value)) return ["view", bytesOf(value, 0, sharedByteLength(value))];
    if (!blobFirst && isBlob(value)) return ["blob", value];
    return undefined;
  };

  // ImageData: RGBA pixels are not a file, so they stay data.
  const isPixels = (value) => {
    const { width, height } = value;
    if (typeof width !== "number" || typeof height !== "number") return false;
    const { data } = value;
    return isView(data) && typedArrayKind(data) === "Uint8ClampedArray" && typedArrayLength(data) === width * height * 4;
  };

  // Returns whether content() is worth calling: for other values it throws inside, which is a hundred times slower than
  // this check. Content has a byteLength or a size from its prototype, or, if a script gave it a plain prototype, no own
  // members.
  const mayBeContent = (value, prototype) => {
    if (isView(value)) return true;
    if (prototype === plainPrototype || prototype === null) return keys(value).length === 0;
    return "byteLength" in prototype || "size" in prototype;
  };

  // The primitive of new String("a") and its like, as JSON.stringify takes it; undefined for anything else.
  const unboxed = (value, kind) => {
    switch (kind) {
      case "String": return isBoxedText(value) ? `${value}` : undefined;
      case "Number": return isBoxedNumber(value) ? +value : undefined;
      case "Boolean": return isBoxedBoolean(value) ? booleanValueOf(value) : undefined;
      case "BigInt": return isBoxedBigInt(value) ? bigIntValueOf(value) : undefined;
      default: return undefined;
    }
  };

  // A toJSON that the page gave to all lists or objects (Prototype.js does) counts for nothing; JSON.stringify would call it.
  const pageHasToJson = () => hasOwn(listPrototype, "toJSON") || hasOwn(plainPrototype, "toJSON");
  const hasOwnToJson = (value) => {
    for (let owner = value; owner && owner !== plainPrototype; owner = getPrototypeOf(owner)) if (hasOwn(owner, "toJSON")) return true;
    return false;
  };
  const NO_TO_JSON = { __proto__: null, value: undefined, configurable: true, writable: true };

  // Returns {json, found: [{path, kind, value}], warnings}. Throws UnsupportedAnswer for cycles and deep nesting. A member
  // that cannot be read is left out, with a warning.
  const pack = (answer) => {
    const found = [], warnings = [], shields = pageHasToJson();
    const steps = [];  // path to the value being copied; only the first `depth` keys are valid
    const open = [];   // its ancestors, outermost first; only the first `opened` are valid
    let opened = 0;
    const pathOf = (depth) => {
      const path = [];
      for (let index = 0; index < depth; index += 1) path[index] = steps[index];
      return path;
    };
    const warn = (depth, text) => {
      if (warnings.length < 20) listPush(warnings, `${listJoin(pathOf(depth), ".") || "answer"}: ${text}`);
    };
    const shielded = (copied) => {
      if (shields && !hasOwn(copied, "toJSON")) defineProperty(copied, "toJSON", NO_TO_JSON);
      return copied;
    };

    const list = (items, depth) => {
      const copied = [], { length } = items;
      for (let index = 0; index < length; index += 1) {
        steps[depth] = index;
        const member = copyItem(items, index, depth + 1);
        copied[index] = member === undefined ? null : member;
      }
      return shielded(copied);
    };
    const copyItem = (items, index, depth) => {
      let item;
      try { item = items[index]; } catch (error) { return unreadable(error, depth); }
      return copy(item, depth);
    };
    const unreadable = (error, depth) => {
      warn(depth, `reading it threw ${wordsOf(error)}`);
      return undefined;
    };

    // Spread syntax reads each member once, makes "__proto__" a plain key and calls no setter.
    const object = (value, depth) => {
      let out;
      try { out = { ...value }; } catch { return objectInSteps(value, depth); }
      const names = keys(out);
      for (let index = 0; index < names.length; index += 1) {
        const key = names[index], member = out[key];
        steps[depth] = key;
        const copied = copy(member, depth + 1);
        if (copied !== member) out[key] = copied; // JSON leaves undefined out
      }
      if (names.length === 0) warnOfEmpty(value, depth);
      return shielded(out);
    };
    const warnOfEqualKeys = (count, depth) => warn(depth, `${count} of its keys are equal to others as text; only the last value of each is kept`);
    const warnOfEmpty = (value, depth) => {
      const kind = kindOf(value);
      if (kind === "Promise") warn(depth, "a Promise cannot be sent and became {}; await it");
      else if (kind !== "Object" && holdsMore(value)) warn(depth, `a ${kind} cannot be sent and became {}; send a Blob, an ArrayBuffer or JSON`);
      else if (kind === "Object" && hasGetters(value)) warn(depth, "an object with getters only became {}; send their values, or give its class a toJSON()");
      else if (isAsyncIterable(value)) warn(depth, "an async iterator cannot be sent and became {}; send what it gives, as a list or a Blob");
    };
    // Repairs the keys of a copy.
    const repairKeys = (copied, depth) => {
      if (typeof copied !== "object" || copied === null || isFrozen(copied)) return; // rawJSON is frozen
      const names = keys(copied);
      let equal = 0;
      for (let index = 0; index < names.length; index += 1) {
        const key = names[index], member = copied[key];
        steps[depth] = key;
        if (!textIsWellFormed(key)) {
          const repaired = textToWellFormed(key);
          warn(depth + 1, "half of a surrogate pair in this key was replaced by U+FFFD");
          equal += hasOwn(copied, repaired) ? 1 : 0;
          delete copied[key];
          setMember(copied, repaired, member);
        }
        repairKeys(member, depth + 1);
      }
      if (equal) warnOfEqualKeys(equal, depth);
    };
    const warnOfBlobUrls = (copied, depth) => {
      if (typeof copied === "string" && textStartsWith(copied, "blob:")) {
        warn(depth, "only the page can read a blob: URL; send the Blob itself");
      }
      if (typeof copied !== "object" || copied === null) return;
      const names = keys(copied);
      for (let index = 0; index < names.length; index += 1) {
        const key = names[index];
        if (key === "downloadUrl" && typeof copied.mimeType === "string") continue; // a descriptor: it is read in the page
        steps[depth] = key;
        warnOfBlobUrls(copied[key], depth + 1);
      }
    };
    // Copies an object with a getter that throws, without that member.
    const objectInSteps = (value, depth) => {
      const readable = { __proto__: null }, names = keys(value);
      for (let index = 0; index < names.length; index += 1) {
        const key = names[index];
        try { setMember(readable, key, value[key]); } catch (error) {
          steps[depth] = key;
          unreadable(error, depth + 1);
        }
      }
      return object(readable, depth);
    };

    // Calls take(item, key) for each item of a Map or Set; those of the app's own making have a forEach of their own.
    const each = (value, isNative, forEach, take) => (isNative(value) ? forEach(value, take) : value.forEach(take));
    const fromMap = (map, depth) => {
      const members = { __proto__: null };
      let equal = 0;
      each(map, isMap, mapForEach, (member, key) => {
        let name;
        try { name = String(key); } catch (error) {
          unreadable(error, depth);
          return;
        }
        if (name in members) equal += 1;
        members[name] = member;
      });
      if (equal) warnOfEqualKeys(equal, depth);
      return object(members, depth);
    };
    const fromSet = (set, depth) => {
      const items = [];
      each(set, isSet, setForEach, (item) => { items[items.length] = item; });
      return list(items, depth);
    };
    // Also those of other windows, and proxies of those of this one.
    const isOf = (value, kind, name, hasSlot, prototype) => (kind === name && hasSlot(value)) || objectIsPrototypeOf(prototype, value);

    const inside = (value, depth, prototype) => {
      if (isArray(value)) return list(value, depth);
      const isPlain = prototype === plainPrototype || prototype === null, kind = isPlain ? "Object" : kindOf(value);
      if (!isPlain) {
        if (isOf(value, kind, "Set", isSet, setPrototype)) return fromSet(value, depth);
        if (isOf(value, kind, "Map", isMap, mapPrototype)) return fromMap(value, depth);
      }
      if (isPixels(value)) return pixels(value);
      if ((!shields || hasOwnToJson(value)) && typeof value.toJSON === "function") {
        const replaced = value.toJSON();
        return replaced === value ? object(value, depth) : copy(replaced, depth);
      }
      if (!isPlain && (isError?.(value) || objectIsPrototypeOf(errorPrototype, value))) {
        return object({ name: value.name, message: value.message }, depth);
      }
      const primitive = isPlain ? undefined : unboxed(value, kind);
      return primitive === undefined ? object(value, depth) : copy(primitive, depth);
    };
    const pixels = ({ width, height, data }) => {
      const items = [];
      for (let index = 0; index < width * height * 4; index += 1) items[index] = data[index];
      return shielded({ width, height, data: shielded(items) });
    };
    const nested = (value, depth, prototype) => {
      if (depth > MAX_DEPTH) throw new UnsupportedAnswer(`the answer is nested deeper than ${MAX_DEPTH} levels`);
      for (let index = 0; index < opened; index += 1) {
        if (open[index] === value) throw new UnsupportedAnswer(`the answer holds itself at ${listJoin(pathOf(depth), ".")}`);
      }
      open[opened] = value;
      opened += 1;
      const copied = inside(value, depth, prototype);
      opened -= 1;
      return copied;
    };
    const copyObject = (value, depth) => {
      const prototype = getPrototypeOf(value), leaf = mayBeContent(value, prototype) ? content(value) : undefined;
      if (leaf === undefined) return nested(value, depth, prototype);
      listPush(found, { path: pathOf(depth), kind: leaf[0], value: leaf[1] });
      return null;
    };

    const copy = (value, depth) => {
      switch (typeof value) {
        case "string":
          if (textIsWellFormed(value)) return value;
          warn(depth, "half of a surrogate pair was replaced by U+FFFD");
          return textToWellFormed(value);
        case "number":
          if (isFinite(value)) return value;
          warn(depth, `${value} is not a JSON number and became null`);
          return null;
        case "bigint": return rawJSON(`${value}`);
        case "boolean": case "undefined": return value;
        case "function": case "symbol":
          warn(depth, `a ${typeof value} cannot be sent and was left out`);
          return undefined;
      }
      if (value === null) return null;
      const openedBefore = opened, foundBefore = found.length;
      try { return copyObject(value, depth); } catch (error) {
        if (depth === 0 || UnsupportedAnswer.is(error)) throw error;
        opened = openedBefore;
        found.length = foundBefore;
        return unreadable(error, depth);
      }
    };

    const copied = copy(answer, 0);
    const json = stringify(copied === undefined ? null : copied);
    if (found.length === 0 && textIncludes(json, '"blob:')) warnOfBlobUrls(copied, 0);
    if (!textIncludes(json, "\\ud")) return { json, found, warnings };
    // Values are well-formed by now. Keys are seldom not, so they are not looked at before.
    repairKeys(copied, 0);
    listForEach(found, (content) => { content.path = mapList(content.path, wellFormed); });
    return { json: stringify(copied), found, warnings: mapList(warnings, textToWellFormed) };
  };
  const wellFormed = (step) => (typeof step === "string" ? textToWellFormed(step) : step);
  // JSON of plain values of our own.
  const toJson = (value) => (pageHasToJson() ? pack(value).json : stringify(value));

  // Puts content into the parameters of a call: contents is [[path, bytes], …].
  const insertContent = (params, contents) => {
    const root = { params };
    listForEach(contents, (entry) => {
      const path = entry[0];
      let node = root, key = "params";
      for (let index = 0; index < path.length; index += 1) {
        node = node[key];
        key = path[index];
      }
      node[key] = entry[1];
    });
    return root.params;
  };

  return { pack, toJson, pageHasToJson, insertContent, isView, toBase64: (view) => bytesToBase64(view), fromBase64, UnsupportedAnswer };
}
