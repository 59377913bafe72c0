// The WebMCP tools of one document: tools registered by its scripts, whose return values are captured here before the
// platform converts them to text, and tools known only to the platform (forms, and tools registered before this script ran).
// A function expression; it runs in every frame. `changed` is called when the list may have changed.
(natives, toJson, changed) => {
  "use strict";
  const {
    Error, Map, Promise, Set, String, WeakMap, WeakSet, apply, defineProperty, documentForms, documentQuerySelectorAll,
    collectionLength, elementGetAttribute, elementHasAttribute, eventTarget, filterList, firstOf, formElements,
    getOwnPropertyDescriptor, getPrototypeOf, isArray, keys, listEvery, listFind, listForEach, listIncludes, listPush, listSome,
    mapList, matches, messageOf, nodesLength, ofPage, parse, plainPrototype, quietly, signalAborted, targetAddEventListener, valuesOf, wait,
  } = natives;
  const { navigator } = ofPage;
  const PLATFORM_TIMEOUT = 2000; // ms for the platform to list its tools
  const FILL_TIMEOUT = 500;      // ms for the platform to fill a form
  const LEAVE_TIMEOUT = 500;     // ms for a page to navigate after a form was sent
  const ONCE = { __proto__: null, once: true };
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
    const before = quietly(() => ({ __proto__: null, ...getOwnPropertyDescriptor(owner, name) })), native = before?.value;
    if (typeof native !== "function" || wrappers.has(native)) return;
    const value = make(native);
    wrappers.add(value);
    // Where it is fixed, tools are called as the platform offers them.
    if (!defineProperty(owner, name, { __proto__: null, ...before, value })) return;
    listPush(undo, () => { if (owner[name] === value) defineProperty(owner, name, { __proto__: null, ...before }); });
  };

  // --- tools registered by scripts ----------------------------------------------------------------------------------
  const schemaOf = (schema) => {
    return quietly(() => parse(typeof schema === "string" ? schema : toJson(schema ?? {}))) ?? {};
  };
  const describe = ({ name, title, description, inputSchema, annotations }) => ({
    name: String(name), title: String(title ?? ""), description: String(description ?? ""),
    inputSchema: schemaOf(inputSchema), annotations: { ...annotations },
  });
  const keep = (tool, context, signal, via) => {
    const entry = { ...describe(tool), tool, execute: tool.execute, context, via };
    if (typeof entry.execute !== "function" || (signal && signalAborted(signal))) return undefined;
    tools.set(entry.name, entry);
    if (signal) targetAddEventListener(signal, "abort", () => forget(entry), ONCE);
    changed();
    return entry;
  };
  const forget = (entry) => {
    if (entry && tools.get(entry.name) === entry) { tools.delete(entry.name); changed(); }
  };
  const toolsNow = () => valuesOf(tools);
  const forgetAll = (context) => listForEach(toolsNow(), (entry) => { if (entry.context === context) forget(entry); });
  const then = (promise, resolved, rejected) => {
    const waiting = async () => {
      try { await promise; } catch { rejected(); return; }
      resolved();
    };
    waiting();
  };
  const nothing = () => {};
  const wrap = {
    registerTool: (native) => function registerTool(tool, options) {
      const result = apply(native, this, arguments); // throws for a name that exists already, and the like
      quietly(() => {
        const register = () => quietly(() => keep(tool, this, options?.signal, "registerTool"));
        const pending = typeof result?.then === "function";
        // A second tool of a name is rejected after a while: until then, the first one keeps its place.
        if (pending && quietly(() => tools.has(String(tool.name)))) {
          then(result, register, nothing);
          return;
        }
        const entry = register();
        if (pending) then(result, nothing, () => forget(entry));
        else if (typeof result?.unregister === "function") { // an older dialect
          const { unregister } = result;
          result.unregister = (...args) => { forget(entry); return apply(unregister, result, args); };
        }
      });
      return result;
    },
    unregisterTool: (native) => function unregisterTool(name) {
      const result = apply(native, this, arguments);
      quietly(() => forget(tools.get(String(name?.name ?? name))));
      return result;
    },
    provideContext: (native) => function provideContext(context) {
      const result = apply(native, this, arguments);
      quietly(() => {
        forgetAll(this);
        const added = context.tools;
        for (let index = 0; index < added.length; index += 1) quietly(() => keep(added[index], this, undefined, "provideContext"));
      });
      return result;
    },
    clearContext: (native) => function clearContext() {
      const result = apply(native, this, arguments);
      quietly(() => forgetAll(this));
      return result;
    },
  };
  const observe = (context) => {
    if ((typeof context !== "object" && typeof context !== "function") || context === null || contexts.has(context)) return;
    contexts.add(context);
    listForEach(METHODS, (name) => {
      for (let owner = context; owner && owner !== plainPrototype; owner = getPrototypeOf(owner)) {
        if (getOwnPropertyDescriptor(owner, name)) { replace(owner, name, wrap[name]); break; }
      }
    });
    quietly(() => targetAddEventListener(context, "toolchange", () => changed()));
    changed();
  };
  const observeAll = () => {
    quietly(() => observe(document.modelContext));
    quietly(() => observe(navigator.modelContext));
  };
  // Detects a polyfill when it installs itself, before a script can register a tool with it.
  replace(ofPage.Object, "defineProperty", (native) => function defineProperty(target, name) {
    const result = apply(native, this, arguments);
    if (name === "modelContext") observeAll();
    return result;
  });
  const submitEvent = ofPage.SubmitEvent?.prototype;
  if (submitEvent && "respondWith" in submitEvent) {
    replace(submitEvent, "respondWith", (native) => function respondWith(response) {
      const result = apply(native, this, arguments);
      quietly(() => responses.set(eventTarget(this), response));
      return result;
    });
  }
  observeAll();
  const observeAgain = () => { observeAll(); changed(); };
  targetAddEventListener(document, "DOMContentLoaded", observeAgain, ONCE);
  targetAddEventListener(window, "load", observeAgain, ONCE);

  // --- tools known only to the platform -----------------------------------------------------------------------------
  const waitAtMost = (milliseconds, promise) => firstOf(promise, wait(milliseconds));
  const offersTools = (context) => typeof context.getTools === "function" && typeof context.executeTool === "function";
  // Polyfills of 2025 list their tools in navigator.modelContextTesting, and accept text as input.
  const testing = () => {
    const shim = quietly(() => navigator.modelContextTesting);
    return typeof shim?.listTools !== "function" ? undefined : {
      getTools: async () => await shim.listTools(),
      executeTool: (tool, input, options) => shim.executeTool(tool.name, toJson(input), options),
    };
  };
  const platform = () => {
    let offering;
    contexts.forEach((context) => { offering ??= quietly(() => offersTools(context)) ? context : undefined; });
    return offering ?? testing();
  };
  let stuck = false; // Chromium 151 may never list its tools again after it was asked early
  const platformTools = async () => {
    observeAll();
    const context = platform();
    const listing = async () => {
      try { return await context.getTools(); } catch { return []; } finally {
        if (stuck) changed();
        stuck = false;
      }
    };
    const listed = context && await waitAtMost(stuck ? 0 : PLATFORM_TIMEOUT, listing());
    stuck = context !== undefined && listed === undefined;
    // The platform also lists tools of other frames, which belong to the wrappers there.
    const ours = filterList(isArray(listed) ? listed : [], (tool) => !tool.window || tool.window === window);
    return mapList(ours, (tool) => ({ context, tool }));
  };
  const itemsOf = (collection, length) => {
    const items = [];
    for (let index = 0; index < length; index += 1) items[index] = collection[index];
    return items;
  };
  const formsNow = () => {
    const forms = documentForms(document);
    return itemsOf(forms, collectionLength(forms));
  };
  const formOf = (name) => listFind(formsNow(), (form) => elementGetAttribute(form, "toolname") === name);
  const waits = (name) => { const form = formOf(name); return form !== undefined && !elementHasAttribute(form, "toolautosubmit"); };
  const withHints = (listed) => {
    const form = formOf(listed.name);
    if (!form) return listed;
    return { ...listed, annotations: { ...listed.annotations, autosubmit: elementHasAttribute(form, "toolautosubmit") } };
  };

  const executeOnPlatform = async ({ context, tool }, input, signal) => {
    const run = (value) => context.executeTool(tool, value, { signal });
    let output;
    try { output = await run(input); } catch (error) {
      if (!matches(/Failed to parse input/, messageOf(error))) throw error; // the tool may have run: no second attempt
      output = await run(toJson(input)); // Chromium before 155 takes text
    }
    if (typeof output !== "string") return output;
    return output === "undefined" ? undefined : quietly(() => parse(output)) ?? (output === "null" ? null : output);
  };
  const executeForm = async (found, input, signal, warn) => {
    const form = formOf(found.tool.name);
    responses.delete(form);
    let output;
    try { output = await executeOnPlatform(found, input, signal); } catch (error) {
      if (signalAborted(signal) || !responses.has(form)) throw error;
    }
    if (responses.has(form)) return responses.get(form); // of a failure it has the page's words, the platform has its own
    if (output === null || output === undefined) {
      await wait(LEAVE_TIMEOUT); // most pages navigate now, and this ends here
      warn(`the form ${found.tool.name} was sent and gave no answer; look at the page for what came of it`);
    }
    return output;
  };
  // The platform fills the form, then waits for a person to send it. The form stays filled in.
  const fillForm = async (work, name) => {
    let failure;
    const filled = new Promise((resolve) => targetAddEventListener(window, "toolactivated", resolve, ONCE));
    const working = async () => { try { await work; } catch (error) { failure = error; } };
    await waitAtMost(FILL_TIMEOUT, firstOf(filled, working()));
    if (failure) throw failure;
    throw new ToolError("PERSON_REQUIRED", `the form ${name} is filled in and waits for a person to send it: it has no ` +
      "toolautosubmit; send it in a visible browser");
  };

  // --- facts for `abp conformance` ----------------------------------------------------------------------------------
  const dialectOf = (value) => {
    if (value === undefined || value === null) return "nothing";
    if (typeof value === "string") return matches(/^\s*[[{]/, value) ? "JSON in text" : "text";
    if (isArray(value.content) && listEvery(value.content, (block) => typeof block?.type === "string")) return "blocks";
    return "plain";
  };
  const seen = new Map(); // tool → {dialect?, ended?}: kind of its last answer, and whether it ended after its signal
  const watch = async (name, signal, work) => {
    const facts = { ...seen.get(name) };
    seen.set(name, facts);
    if (signal) targetAddEventListener(signal, "abort", () => { facts.ended ??= false; }, ONCE);
    try {
      const value = await work;
      facts.dialect = dialectOf(value);
      return value;
    } finally { if (facts.ended === false) facts.ended = true; }
  };
  const typeOf = (value) => (value === null ? "null" : isArray(value) ? "array" : typeof value);
  const undescribed = (schema) => {
    const members = schemaOf(schema)?.properties ?? {};
    return filterList(keys(members), (key) => !members[key]?.description);
  };
  const SELF_NAMED = ["submit", "button", "image", "reset", "fieldset", "output"]; // types of elements that need no name
  const inspectForm = (form) => {
    const elements = formElements(form), inputs = itemsOf(elements, collectionLength(elements));
    return {
      name: elementGetAttribute(form, "toolname"), description: elementGetAttribute(form, "tooldescription") ?? "",
      autosubmit: elementHasAttribute(form, "toolautosubmit"),
      submitter: listSome(inputs, (one) => one.type === "submit" || one.type === "image"),
      nameless: filterList(inputs, (one) => !one.name && !listIncludes(SELF_NAMED, one.type)).length,
    };
  };

  return {
    ToolError,
    async inspect() {
      const scripted = mapList(toolsNow(), ({ name, tool, via }) => {
        const hints = tool.annotations ?? {};
        return {
          name, via, description: tool.description, schema: typeOf(tool.inputSchema), undescribed: undescribed(tool.inputSchema),
          hints: filterList(keys(hints), (key) => typeof hints[key] !== "boolean"), ...seen.get(name),
        };
      });
      const forms = documentQuerySelectorAll(document, "form[toolname], form[tooldescription]");
      return { tools: scripted, forms: mapList(itemsOf(forms, nodesLength(forms)), inspectForm),
        api: quietly(() => document.modelContext) ? "document" : quietly(() => navigator.modelContext) ? "navigator" : "none",
        secure: ofPage.isSecureContext };
    },
    async list() {
      const listed = mapList(toolsNow(), describe);
      listForEach(await platformTools(), ({ tool }) => { if (!tools.has(tool.name)) listPush(listed, describe(tool)); });
      return mapList(listed, withHints);
    },
    // Runs a tool and returns its value. `warn` gets a warning if the platform converted the answer to text. `abp` is
    // {callId}, by which an app of the protocol that offers itself as tools identifies the call.
    async execute(name, input, { signal, warn, abp }) {
      const entry = tools.get(name);
      if (entry) {
        const extra = { signal, abp, requestUserInteraction: (work) => work() };
        const work = watch(name, signal, (async () => await apply(entry.execute, entry.tool, [input, extra]))());
        return waits(name) ? await fillForm(work, name) : await work;
      }
      const found = listFind(await platformTools(), ({ tool }) => tool.name === name);
      if (!found) throw new ToolError("UNKNOWN_CAPABILITY", `the page no longer has a tool ${name}`);
      if (waits(name)) return await fillForm(executeOnPlatform(found, input), name);
      if (formOf(name)) return await executeForm(found, input, signal, warn);
      warn("the page registered this tool before the session came: buffers in its answer are lost, since the platform makes text of it");
      return await executeOnPlatform(found, input, signal);
    },
    hasPlatform: () => contexts.size > 0 || platform() !== undefined,
    uninstall() { listForEach(undo, quietly); },
  };
}
