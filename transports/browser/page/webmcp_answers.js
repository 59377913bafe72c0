// Conversion of return values of WebMCP tools into answers of the protocol, and of files in parameters into the form in a
// tool's schema. A function expression; it runs in the tool's own frame, where its blob: URLs and streams can be read.
(blobOfUrl) => {
  "use strict";
  const { apply, ownKeys } = Reflect, { isArray } = Array, { parse, stringify } = JSON;
  const encode = Uint8Array.prototype.toBase64, decode = Uint8Array.fromBase64;
  const fetch = globalThis.fetch.bind(globalThis), revoke = URL.revokeObjectURL.bind(URL);
  const NativeBlob = Blob, NativeStream = globalThis.ReadableStream, NativeResponse = globalThis.Response;
  const MAX_DEPTH = 64, LONG_TEXT = 64 * 1024; // characters from which base64 is taken out of the JSON
  const MAX_MESSAGE = 2000;

  const quietly = (work) => { try { return work(); } catch { return undefined; } };
  const isObject = (value) => typeof value === "object" && value !== null;
  const isPlain = (value) => isObject(value) && [Object.prototype, null].includes(Object.getPrototypeOf(value));
  const text = (value) => (typeof value === "string" && value !== "" ? value : undefined);

  // --- JSON in text: objects and lists only, with whole numbers exact ------------------------------------------------
  const exact = (_, value, context) =>
    typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "") ? BigInt(context.source) : value;
  const fromText = (value) => {
    if (!/^\s*[[{]/.test(value)) return value;
    try { return parse(value, exact); } catch { return value; }
  };

  // --- files ---------------------------------------------------------------------------------------------------------
  const dataUrl = (url) => {
    const [, type, base64, body] = /^data:([^,]*?)(;base64)?,(.*)$/is.exec(url) ?? [];
    if (body === undefined) return undefined;
    try {
      const bytes = base64 ? apply(decode, Uint8Array, [body, { lastChunkHandling: "strict" }]) : new TextEncoder().encode(decodeURIComponent(body));
      return new NativeBlob([bytes], { type });
    } catch { return undefined; }
  };
  const blobUrl = async (url) => {
    const known = blobOfUrl(url); // a strict policy would forbid fetch()
    const blob = known ?? await (await fetch(url)).blob();
    revoke(url);
    return blob;
  };
  // {fileName, mimeType, size, dataUrl | blobUrl} as a descriptor of the protocol.
  const file = async ({ dataUrl: data, blobUrl: url, fileName, mimeType, ...rest }, warn) => {
    const described = { ...rest, ...(text(fileName) ? { filename: fileName } : {}) };
    if (text(mimeType)) described.mimeType = mimeType;
    if (text(url)?.startsWith("blob:")) {
      try { return { ...described, content: await blobUrl(url) }; } catch (error) {
        if (!text(data)) throw new Error(`the tool's file ${fileName ?? ""} is gone: ${url.slice(0, 100)} cannot be read (${error?.message ?? error})`);
        warn(`the blobUrl could not be read (${error?.message ?? error}); its dataUrl was taken`);
      }
    }
    const content = dataUrl(data);
    if (content) return { ...described, content };
    return { mimeType: "application/octet-stream", ...described, downloadUrl: data }; // Python refuses it with a reason
  };
  const isFile = (value) => Boolean(text(value.blobUrl)?.startsWith("blob:") || text(value.dataUrl)?.startsWith("data:"));

  // Copies an answer, with its files as content.
  const walk = async (value, warn, depth = 0, ancestors = new Set()) => {
    if (!isObject(value)) return value;
    if (NativeStream && value instanceof NativeStream) return new NativeResponse(value).blob();
    if (NativeResponse && value instanceof NativeResponse) return value.blob();
    const list = isArray(value);
    if ((!list && !isPlain(value)) || depth > MAX_DEPTH || ancestors.has(value)) return value; // handled by the codec
    ancestors.add(value);
    try {
      if (list) {
        const items = [];
        for (const item of value) items.push(await walk(item, warn, depth + 1, ancestors));
        return items;
      }
      if (isFile(value)) return await file(value, warn);
      if (["image", "audio"].includes(value.type) && value.data?.length > LONG_TEXT && typeof value.data === "string") {
        try { return { ...value, data: apply(decode, Uint8Array, [value.data, { lastChunkHandling: "strict" }]) }; } catch { return value; }
      }
      const copy = {};
      for (const key of Object.keys(value)) {
        const member = await walk(value[key], warn, depth + 1, ancestors);
        Object.defineProperty(copy, key, { value: member, enumerable: true, configurable: true, writable: true });
      }
      if (text(copy.fileName) && copy.filename === undefined && isObject(copy.content)) copy.filename = copy.fileName;
      return copy;
    } finally { ancestors.delete(value); }
  };

  // --- answers -------------------------------------------------------------------------------------------------------
  const isBlock = (block) => isPlain(block) && typeof block.type === "string";
  const isBlocks = (value) => isPlain(value) && isArray(value.content) && value.content.every(isBlock);
  const textOf = (block) => (block.type === "text" ? text(block.text) : undefined);
  const wordsOf = (value) => {
    if (typeof value === "string") return value;
    const texts = isBlocks(value) ? value.content.map(textOf).filter(Boolean).join("\n") : "";
    return text(value?.error) ?? text(value?.error?.message) ?? text(value?.message) ?? text(texts);
  };
  const failure = (value, message) => {
    const error = isPlain(value.error) ? value.error : {};
    const { success: _, isError, error: __, message: ___, content, ...rest } = value; // the rest becomes the details
    const told = Object.keys(rest).length ? quietly(() => parse(stringify(rest))) : undefined;
    const details = error.details === undefined && told ? { details: told } : {};
    return { success: false, error: { ...error, ...details, code: text(error.code) ?? "OPERATION_FAILED",
      message: (message ?? "the tool failed and did not say why").slice(0, MAX_MESSAGE) } };
  };
  const isFailure = (value) => isPlain(value) && (value.isError === true || (value.success === false && value.error !== undefined));

  // A single text block becomes its JSON or its text. Several blocks stay blocks, whose texts are parsed if they are JSON.
  const dataOf = (value) => {
    if (typeof value === "string") return fromText(value);
    if (!isBlocks(value)) return value;
    const { content, structuredContent: structured, isError: _, _meta, ...rest } = value;
    const blocks = content.map((block) => (textOf(block) === undefined ? block : { ...block, text: fromText(block.text) }));
    const files = blocks.filter((block) => block.type !== "text");
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
    return { success: true, data: (await walk(data, warn)) ?? null };
  };

  // --- parameters ----------------------------------------------------------------------------------------------------
  const isUpload = (value) => isPlain(value) && value.content instanceof ArrayBuffer && typeof value.mimeType === "string";
  const base64Of = ({ content }) => apply(encode, new Uint8Array(content), []);
  const urlOf = (upload) => `data:${upload.mimeType};base64,${base64Of(upload)}`;
  const asText = (upload, schema, name = "") => {
    const hints = [schema.format, schema.pattern, schema.contentEncoding, schema.description, name].filter(Boolean).join(" ");
    return /data[-_ ]?ur[li]|data:|\buri\b/i.test(hints) ? urlOf(upload) : base64Of(upload);
  };
  const PARTS = [
    [/^(file)?_?name$/i, ({ filename }) => filename],
    [/^(mime_?|media_?|content_?)?type$/i, ({ mimeType }) => mimeType],
    [/^(size|byteLength|bytes_?length)$/i, ({ content }) => content.byteLength],
  ];
  const typeOf = (schema) => (isArray(schema?.type) ? schema.type.find((type) => type !== "null") : schema?.type);
  // The branch of anyOf or oneOf that can hold a file: a string or an object.
  const branch = (schema) => {
    const some = schema?.anyOf ?? schema?.oneOf;
    return (isArray(some) && some.find((one) => ["string", "object"].includes(typeOf(one)))) || schema || {};
  };
  const shape = (upload, given, name) => {
    const schema = branch(given), type = typeOf(schema);
    if (type === "string") return asText(upload, schema, name);
    const members = isPlain(schema.properties) ? Object.entries(schema.properties) : [];
    const content = members.find(([key]) => key === "content");
    if (!members.length || (content && typeOf(content[1]) !== "string")) return upload; // the tool expects a buffer
    const shaped = {};
    for (const [key, member] of members) {
      const part = PARTS.find(([pattern]) => pattern.test(key));
      if (part) {
        const value = part[1](upload);
        if (value !== undefined) shaped[key] = value;
      } else if (typeOf(member) === "string" && /data|content|base64|body|bytes|url|src|blob/i.test(key)) {
        shaped[key] = asText(upload, member, key);
      } else if (key === "encoding") shaped[key] = "base64";
    }
    return shaped;
  };
  const toInput = (value, schema, name = "") => {
    if (isUpload(value)) return shape(value, schema, name);
    if (isArray(value)) return value.map((item) => toInput(item, branch(schema)?.items, name));
    if (!isPlain(value)) return value;
    const members = branch(schema)?.properties ?? {};
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, toInput(item, members[key], key)]));
  };

  return { toAnswer, toInput };
}
