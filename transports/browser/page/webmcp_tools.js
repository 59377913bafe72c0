// The WebMCP tools of one document: tools registered by its scripts, whose return values are captured here before the
// platform converts them to text, and tools known only to the platform (forms, and tools registered before this script ran).
// A function expression; it runs in every frame. `changed` is called when the list may have changed.
(changed) => {
  "use strict";
  const { apply, getPrototypeOf } = Reflect, { getOwnPropertyDescriptor } = Object, nativeDefine = Object.defineProperty;
  const { parse, stringify } = JSON, setTimer = globalThis.setTimeout.bind(globalThis);
  const addListener = EventTarget.prototype.addEventListener;
  const PLATFORM_TIMEOUT = 2000; // ms for the platform to list its tools
  const FILL_TIMEOUT = 500;      // ms for the platform to fill a form
  const LEAVE_TIMEOUT = 500;     // ms for a page to navigate after a form was sent
  const METHODS = ["registerTool", "unregisterTool", "provideContext", "clearContext"];

  class ToolError extends Error {
    constructor(code, message) { super(message); this.code = code; }
  }

  const tools = new Map();     // name → {name, title, …, execute}: tools registered by scripts
  const contexts = new Set();  // objects called modelContext: the platform's, and a polyfill's
  const wrappers = new WeakSet();
  const responses = new WeakMap(); // form → argument of event.respondWith()
  const undo = [];

  const replace = (owner, name, make) => {
    const before = getOwnPropertyDescriptor(owner, name), native = before?.value;
    if (typeof native !== "function" || wrappers.has(native)) return;
    const value = make(native);
    wrappers.add(value);
    try {
      nativeDefine(owner, name, { ...before, value });
      undo.push(() => { if (owner[name] === value) nativeDefine(owner, name, before); });
    } catch { /* frozen: its tools are called as the platform offers them */ }
  };

  // --- tools registered by scripts ----------------------------------------------------------------------------------
  const schemaOf = (schema) => {
    try { return typeof schema === "string" ? parse(schema) : parse(stringify(schema ?? {})); } catch { return {}; }
  };
  const describe = ({ name, title, description, inputSchema, annotations }) => ({
    name: String(name), title: String(title ?? ""), description: String(description ?? ""),
    inputSchema: schemaOf(inputSchema), annotations: { ...annotations },
  });
  const keep = (tool, context, signal, via) => {
    const entry = { ...describe(tool), tool, execute: tool.execute, context, via };
    if (typeof entry.execute !== "function" || signal?.aborted) return undefined;
    tools.set(entry.name, entry);
    if (signal) apply(addListener, signal, ["abort", () => forget(entry), { once: true }]);
    changed();
    return entry;
  };
  const forget = (entry) => {
    if (entry && tools.get(entry.name) === entry) { tools.delete(entry.name); changed(); }
  };
  const forgetAll = (context) => { for (const entry of [...tools.values()]) if (entry.context === context) forget(entry); };
  const quietly = (work) => { try { return work(); } catch { return undefined; } };
  const wrap = {
    registerTool: (native) => function registerTool(tool, options) {
      const result = apply(native, this, arguments); // throws for a name that exists already, and the like
      const register = () => quietly(() => keep(tool, this, options?.signal, "registerTool"));
      const pending = typeof result?.then === "function";
      // A second tool of a name is rejected after a while: until then, the first one keeps its place.
      if (pending && quietly(() => tools.has(String(tool.name)))) {
        result.then(register, () => {});
        return result;
      }
      const entry = register();
      if (pending) result.then(undefined, () => forget(entry));
      else if (typeof result?.unregister === "function") { // an older dialect
        const { unregister } = result;
        result.unregister = (...args) => { forget(entry); return apply(unregister, result, args); };
      }
      return result;
    },
    unregisterTool: (native) => function unregisterTool(name) {
      const result = apply(native, this, arguments);
      forget(tools.get(String(name?.name ?? name)));
      return result;
    },
    provideContext: (native) => function provideContext(context) {
      const result = apply(native, this, arguments);
      forgetAll(this);
      for (const tool of quietly(() => [...context.tools]) ?? []) quietly(() => keep(tool, this, undefined, "provideContext"));
      return result;
    },
    clearContext: (native) => function clearContext() {
      const result = apply(native, this, arguments);
      forgetAll(this);
      return result;
    },
  };
  const observe = (context) => {
    if ((typeof context !== "object" && typeof context !== "function") || context === null || contexts.has(context)) return;
    contexts.add(context);
    for (const name of METHODS) {
      for (let owner = context; owner && owner !== Object.prototype; owner = getPrototypeOf(owner)) {
        if (getOwnPropertyDescriptor(owner, name)) { replace(owner, name, wrap[name]); break; }
      }
    }
    quietly(() => apply(addListener, context, ["toolchange", () => changed()]));
    changed();
  };
  const observeAll = () => {
    for (const holder of [document, navigator]) quietly(() => observe(holder.modelContext));
  };
  // Detects a polyfill when it installs itself, before a script can register a tool with it.
  replace(Object, "defineProperty", (native) => function defineProperty(target, name) {
    const result = apply(native, this, arguments);
    if (name === "modelContext") observeAll();
    return result;
  });
  const submitEvent = globalThis.SubmitEvent?.prototype;
  if (submitEvent && "respondWith" in submitEvent) {
    replace(submitEvent, "respondWith", (native) => function respondWith(response) {
      const result = apply(native, this, arguments);
      responses.set(this.target, response);
      return result;
    });
  }
  observeAll();
  for (const [target, type] of [[document, "DOMContentLoaded"], [globalThis, "load"]]) {
    apply(addListener, target, [type, () => { observeAll(); changed(); }, { once: true }]);
  }

  // --- tools known only to the platform -----------------------------------------------------------------------------
  const waitAtMost = (milliseconds, promise) =>
    Promise.race([promise, new Promise((resolve) => setTimer(resolve, milliseconds))]);
  const offersTools = (context) => typeof context.getTools === "function" && typeof context.executeTool === "function";
  // Polyfills of 2025 list their tools in navigator.modelContextTesting, and accept text as input.
  const testing = () => {
    const shim = quietly(() => navigator.modelContextTesting);
    return typeof shim?.listTools !== "function" ? undefined : {
      getTools: async () => shim.listTools(),
      executeTool: (tool, input, options) => shim.executeTool(tool.name, stringify(input), options),
    };
  };
  const platform = () => [...contexts].find(offersTools) ?? testing();
  const platformTools = async () => {
    observeAll();
    const context = platform();
    const listed = context && await waitAtMost(PLATFORM_TIMEOUT, quietly(() => context.getTools())?.catch?.(() => []));
    // The platform also lists tools of other frames, which belong to the wrappers there.
    return [...listed ?? []].filter((tool) => !tool.window || tool.window === globalThis).map((tool) => ({ context, tool }));
  };
  const formOf = (name) => [...document.forms].find((form) => form.getAttribute("toolname") === name);
  const waits = (name) => { const form = formOf(name); return Boolean(form) && !form.hasAttribute("toolautosubmit"); };
  const withHints = (listed) => {
    const form = formOf(listed.name);
    return form ? { ...listed, annotations: { ...listed.annotations, autosubmit: form.hasAttribute("toolautosubmit") } } : listed;
  };

  const executeOnPlatform = async ({ context, tool }, input, signal) => {
    const run = (value) => context.executeTool(tool, value, { signal });
    let output;
    try { output = await run(input); } catch (error) {
      if (!/Failed to parse input/.test(String(error?.message))) throw error; // the tool may have run: no second attempt
      output = await run(stringify(input)); // Chromium before 155 takes text
    }
    if (typeof output !== "string") return output;
    return output === "undefined" ? undefined : quietly(() => parse(output)) ?? (output === "null" ? null : output);
  };
  const executeForm = async (found, input, signal, warn) => {
    const form = formOf(found.tool.name);
    responses.delete(form);
    const output = await executeOnPlatform(found, input, signal);
    if (responses.has(form)) return responses.get(form);
    if (output === null || output === undefined) {
      await new Promise((resolve) => setTimer(resolve, LEAVE_TIMEOUT)); // most pages navigate now, and this ends here
      warn(`the form ${found.tool.name} was sent and gave no answer; look at the page for what came of it`);
    }
    return output;
  };
  // The platform fills the form, then waits for a person to send it. The form stays filled in.
  const fillForm = async (work, name) => {
    let failure;
    const filled = new Promise((resolve) => apply(addListener, globalThis, ["toolactivated", resolve, { once: true }]));
    await waitAtMost(FILL_TIMEOUT, Promise.race([filled, work.catch((error) => { failure = error; })]));
    if (failure) throw failure;
    throw new ToolError("PERSON_REQUIRED", `the form ${name} is filled in and waits for a person to send it: it has no ` +
      "toolautosubmit; send it in the browser (headless=False)");
  };

  // --- facts for `abp conformance` ----------------------------------------------------------------------------------
  const dialectOf = (value) => {
    if (value === undefined || value === null) return "nothing";
    if (typeof value === "string") return /^\s*[[{]/.test(value) ? "JSON in text" : "text";
    if (Array.isArray(value.content) && value.content.every?.((block) => typeof block?.type === "string")) return "blocks";
    return "plain";
  };
  const seen = new Map(); // tool → {dialect?, ended?}: kind of its last answer, and whether it ended after its signal
  const watch = async (name, signal, work) => {
    const facts = { ...seen.get(name) };
    seen.set(name, facts);
    if (signal) apply(addListener, signal, ["abort", () => { facts.ended ??= false; }, { once: true }]);
    try {
      const value = await work;
      facts.dialect = dialectOf(value);
      return value;
    } finally { if (facts.ended === false) facts.ended = true; }
  };
  const typeOf = (value) => (value === null ? "null" : Array.isArray(value) ? "array" : typeof value);
  const undescribed = (schema) => Object.entries(schemaOf(schema)?.properties ?? {}).filter(([, one]) => !one?.description).map(([key]) => key);
  const inspectForm = (form) => ({
    name: form.getAttribute("toolname"), description: form.getAttribute("tooldescription") ?? "",
    autosubmit: form.hasAttribute("toolautosubmit"),
    submitter: [...form.elements].some((one) => one.type === "submit" || one.type === "image"),
    nameless: [...form.elements].filter((one) => !one.name && !["submit", "button", "image", "reset", "fieldset", "output"].includes(one.type)).length,
  });

  return {
    ToolError,
    async inspect() {
      const scripted = [...tools.values()].map(({ name, tool, via }) => ({
        name, via, description: tool.description, schema: typeOf(tool.inputSchema), undescribed: undescribed(tool.inputSchema),
        hints: Object.entries(tool.annotations ?? {}).filter(([, value]) => typeof value !== "boolean").map(([key]) => key),
        ...seen.get(name),
      }));
      const forms = [...document.querySelectorAll("form[toolname], form[tooldescription]")].map(inspectForm);
      return { tools: scripted, forms, api: document.modelContext ? "document" : navigator.modelContext ? "navigator" : "none",
        secure: globalThis.isSecureContext };
    },
    async list() {
      const found = await platformTools();
      const names = new Set(tools.keys());
      const more = found.filter(({ tool }) => !names.has(tool.name)).map(({ tool }) => describe(tool));
      return [...[...tools.values()].map(describe), ...more].map(withHints);
    },
    // Runs a tool and returns its value. `warn` gets a warning if the platform converted the answer to text. `abp` is
    // {callId}, by which an app of the protocol that offers itself as tools identifies the call.
    async execute(name, input, { signal, warn, abp }) {
      const entry = tools.get(name);
      if (entry) {
        const extra = { signal, abp, requestUserInteraction: (work) => work() };
        const work = watch(name, signal, (async () => apply(entry.execute, entry.tool, [input, extra]))());
        return waits(name) ? fillForm(work, name) : await work;
      }
      const found = (await platformTools()).find(({ tool }) => tool.name === name);
      if (!found) throw new ToolError("UNKNOWN_CAPABILITY", `the page has no tool ${name} any more`);
      if (waits(name)) return fillForm(executeOnPlatform(found, input), name);
      if (formOf(name)) return executeForm(found, input, signal, warn);
      warn("the page registered this tool before the session came: buffers in its answer are lost, since the platform makes text of it");
      return executeOnPlatform(found, input, signal);
    },
    hasPlatform: () => contexts.size > 0 || platform() !== undefined,
    uninstall() { for (const step of undo.splice(0)) step(); },
  };
}
