// Conversion of return values of WebMCP tools into answers of the protocol, and of files in parameters into the form in a
// tool's schema. A function expression; it runs in the tool's own frame, where its blob: URLs and streams can be read.
(natives, toJson, blobOfUrl) => {
  "use strict";
  const {
    BigInt, Blob, Error, Response, Set, TextEncoder, Uint8Array, bufferByteLength, bytesToBase64, decodeURIComponent,
    encoderEncode, fetch, filterList, fromBase64, getPrototypeOf, isArray, isSafeInteger, keys, listEvery, listFind,
    listForEach, listIncludes, listJoin, mapList, matches, messageOf, ownKeys, parse, plainPrototype, quietly, regExpExec,
    responseBlob, responseOk, revokeObjectURL, sequence, setMember, streamLocked, textSlice, textStartsWith,
  } = natives;
  const MAX_DEPTH = 64, LONG_TEXT = 64 * 1024; // characters from which base64 is taken out of the JSON
  const MAX_MESSAGE = 2000;

  const isObject = (value) => typeof value === "object" && value !== null;
  const isPlain = (value) => {
    const prototype = isObject(value) ? getPrototypeOf(value) : undefined;
    return prototype === plainPrototype || prototype === null;
  };
  const text = (value) => (typeof value === "string" && value !== "" ? value : undefined);

  const textStarts = (value, beginning) => typeof value === "string" && textStartsWith(value, beginning);

  // --- JSON in text: objects and lists only, with whole numbers exact ------------------------------------------------
  const exact = (_, value, context) =>
    typeof value === "number" && !isSafeInteger(value) && matches(/^-?\d+$/, context?.source ?? "") ? BigInt(context.source) : value;
  const fromText = (value) => {
    if (!matches(/^\s*[[{]/, value)) return value;
    try { return parse(value, exact); } catch { return value; }
  };

  // --- files ---------------------------------------------------------------------------------------------------------
  const decoded = (base64) => fromBase64(base64, { __proto__: null, lastChunkHandling: "strict" });
  const dataUrl = (url) => {
    const parts = regExpExec(/^data:([^,]*?)(;base64)?,(.*)$/is, url) ?? [], type = parts[1], body = parts[3];
    if (body === undefined) return undefined;
    return quietly(() => {
      const bytes = parts[2] ? decoded(body) : encoderEncode(new TextEncoder(), decodeURIComponent(body));
      return new Blob(sequence([bytes]), { __proto__: null, type });
    });
  };
  const blobUrl = async (url) => {
    const blob = blobOfUrl(url) ?? await responseBlob(await fetch(url)); // a strict policy would forbid fetch()
    revokeObjectURL(url);
    return blob;
  };
  // {fileName, mimeType, size, dataUrl | blobUrl} as a descriptor of the protocol.
  const file = async ({ dataUrl: data, blobUrl: url, fileName, mimeType, ...rest }, warn) => {
    const described = { ...rest, ...(text(fileName) ? { filename: fileName } : {}) };
    if (text(mimeType)) described.mimeType = mimeType;
    if (textStarts(url, "blob:")) {
      try { return { ...described, content: await blobUrl(url) }; } catch (error) {
        if (!text(data)) throw new Error(`the tool's file ${text(fileName) ?? ""} no longer exists: ${textSlice(url, 0, 100)} cannot be read (${messageOf(error)})`);
        warn(`the blobUrl could not be read (${messageOf(error)}); its dataUrl was taken`);
      }
    }
    const content = dataUrl(data);
    if (content) return { ...described, content };
    return { mimeType: "application/octet-stream", ...described, downloadUrl: data }; // Python refuses it with a reason
  };
  const isFile = (value) => textStarts(value.blobUrl, "blob:") || textStarts(value.dataUrl, "data:");

  // A copy of a list or plain object, one level deep, each member read once. Undefined for anything else, and for what throws
  // when it is read: the codec says where.
  const readOnce = (value) => quietly(() => {
    if (isArray(value)) return mapList(value, (item) => item);
    return isPlain(value) ? { ...value } : undefined;
  });
  // Copies an answer, with its files as content. The copy is in a box: as the result itself it would be asked for its `then`.
  const box = (value) => ({ __proto__: null, value });
  const walk = async (value, warn, depth = 0, ancestors = new Set()) => {
    if (!isObject(value)) return box(value);
    const read = readOnce(value);
    if (read === undefined) {
      if (quietly(() => streamLocked(value)) !== undefined) return box(await responseBlob(new Response(value)));
      if (quietly(() => responseOk(value)) !== undefined) return box(await responseBlob(value));
      try { return box(await value); } catch { return box(value); } // a promise, mostly; the codec says what cannot be read
    }
    if (depth > MAX_DEPTH || ancestors.has(value)) return box(value); // handled by the codec
    ancestors.add(value);
    try {
      if (!isArray(read)) {
        if (isFile(read)) return box(await file(read, warn));
        const { type, data } = read;
        if ((type === "image" || type === "audio") && typeof data === "string" && data.length > LONG_TEXT) {
          return box(quietly(() => ({ ...read, data: decoded(data) })) ?? value);
        }
      }
      const names = keys(read);
      for (let index = 0; index < names.length; index += 1) {
        const key = names[index], copied = await walk(read[key], warn, depth + 1, ancestors);
        setMember(read, key, copied.value);
      }
      if (text(read.fileName) && read.filename === undefined && isObject(read.content)) read.filename = read.fileName;
      return box(read);
    } finally { ancestors.delete(value); }
  };

  // --- answers -------------------------------------------------------------------------------------------------------
  const isBlock = (block) => isPlain(block) && typeof block.type === "string";
  const isBlocks = (value) => isPlain(value) && isArray(value.content) && listEvery(value.content, isBlock);
  const textOf = (block) => (block.type === "text" ? text(block.text) : undefined);
  const wordsOf = (value) => {
    if (typeof value === "string") return value;
    const texts = isBlocks(value) ? listJoin(filterList(mapList(value.content, textOf), (words) => words !== undefined), "\n") : "";
    return text(value?.error) ?? text(value?.error?.message) ?? text(value?.message) ?? text(texts);
  };
  const failure = (value, message) => {
    const error = isPlain(value.error) ? value.error : {};
    const { success: _, isError, error: __, message: ___, content, ...rest } = value; // the rest becomes the details
    const extra = keys(rest).length ? quietly(() => parse(toJson(rest))) : undefined;
    const details = error.details === undefined && extra ? { details: extra } : {};
    return { success: false, error: { ...error, ...details, code: text(error.code) ?? "OPERATION_FAILED",
      message: textSlice(message ?? "the tool failed and did not say why", 0, MAX_MESSAGE) } };
  };
  const isFailure = (value) => isPlain(value) && (value.isError === true || (value.success === false && value.error !== undefined));

  // A single text block becomes its JSON or its text. Several blocks stay blocks, whose texts are parsed if they are JSON.
  const dataOf = (value) => {
    if (typeof value === "string") return fromText(value);
    if (!isBlocks(value)) return value;
    const { content, structuredContent: structured, isError: _, _meta, ...rest } = value;
    const blocks = mapList(content, (block) => (textOf(block) === undefined ? block : { ...block, text: fromText(block.text) }));
    const files = filterList(blocks, (block) => block.type !== "text");
    if (isPlain(structured)) return files.length && !("content" in structured) ? { ...structured, content: files } : structured;
    if (blocks.length === 1 && blocks[0].type === "text" && !ownKeys(rest).length) return blocks[0].text;
    return { ...rest, content: blocks };
  };

  // Returns {success, data} or {success: false, error}, as an app of the protocol answers a call.
  const toAnswer = async (value, warn) => {
    if (isFailure(value)) {
      if (value.cancelled === true) return { success: false, cancelled: true };
      const inner = isBlocks(value) && value.content.length === 1 ? fromText(textOf(value.content[0]) ?? "") : undefined;
      return isPlain(inner) && value.error === undefined ? failure(inner, wordsOf(inner)) : failure(value, wordsOf(value));
    }
    const data = dataOf(value);
    if (data !== value && isFailure(data)) return failure(data, wordsOf(data));
    const copied = await walk(data, warn);
    return { success: true, data: copied.value ?? null };
  };

  // --- parameters ----------------------------------------------------------------------------------------------------
  const isUpload = (value) =>
    isPlain(value) && typeof value.mimeType === "string" && quietly(() => bufferByteLength(value.content)) !== undefined;
  const base64Of = ({ content }) => bytesToBase64(new Uint8Array(content));
  const urlOf = (upload) => `data:${upload.mimeType};base64,${base64Of(upload)}`;
  const asText = (upload, schema, name = "") => {
    const hints = [schema.format, schema.pattern, schema.contentEncoding, schema.description, name];
    const hintText = listJoin(filterList(hints, (hint) => typeof hint === "string"), " ");
    return matches(/data[-_ ]?ur[li]|data:|\buri\b/i, hintText) ? urlOf(upload) : base64Of(upload);
  };
  const PARTS = [
    [/^(file)?_?name$/i, ({ filename }) => filename],
    [/^(mime_?|media_?|content_?)?type$/i, ({ mimeType }) => mimeType],
    [/^(size|byteLength|bytes_?length)$/i, ({ content }) => bufferByteLength(content)],
  ];
  const typeOf = (schema) => (isArray(schema?.type) ? listFind(schema.type, (type) => type !== "null") : schema?.type);
  // The branch of anyOf or oneOf that can hold a file: a string or an object.
  const branch = (schema) => {
    const some = schema?.anyOf ?? schema?.oneOf;
    return (isArray(some) && listFind(some, (option) => listIncludes(["string", "object"], typeOf(option)))) || schema || {};
  };
  const shape = (upload, declared, name) => {
    const schema = branch(declared), type = typeOf(schema);
    if (type === "string") return asText(upload, schema, name);
    const members = isPlain(schema.properties) ? schema.properties : {}, names = keys(members), shaped = {};
    const holdsBuffer = listIncludes(names, "content") && typeOf(members.content) !== "string";
    if (!names.length || holdsBuffer) return upload; // the tool expects a buffer
    listForEach(names, (key) => {
      const part = listFind(PARTS, (entry) => matches(entry[0], key));
      if (part) {
        const value = part[1](upload);
        if (value !== undefined) shaped[key] = value;
      } else if (typeOf(members[key]) === "string" && matches(/data|content|base64|body|bytes|url|src|blob/i, key)) {
        shaped[key] = asText(upload, members[key], key);
      } else if (key === "encoding") shaped[key] = "base64";
    });
    return shaped;
  };
  const toInput = (value, schema, name = "") => {
    if (isUpload(value)) return shape(value, schema, name);
    if (isArray(value)) return mapList(value, (item) => toInput(item, branch(schema)?.items, name));
    if (!isPlain(value)) return value;
    const members = branch(schema)?.properties ?? {};
    const copy = {};
    listForEach(keys(value), (key) => setMember(copy, key, toInput(value[key], members[key], key)));
    return copy;
  };

  return { toAnswer, toInput };
}
