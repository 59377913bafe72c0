// Side effects of an app: printing, downloads, file choosers, the clipboard, object URLs that windows show.
// A function expression: agent.js calls it before the app's first script and adds the returned methods to the agent.
// embedded.js calls it for an app in a frame, which cannot be printed (prints: false). With `later`, everything but object
// URLs is hooked only when watch() is called.
(host) => {
  "use strict";
  const { emit, hold, currentCall, prints = true, later = false } = host;
  const { apply } = Reflect, { stringify } = JSON, setTimer = setTimeout.bind(globalThis);
  const NativeBlob = Blob, NativeEvent = Event, NativeError = DOMException, Sheet = CSSStyleSheet;
  const { dispatchEvent, addEventListener } = EventTarget.prototype, { closest } = Element.prototype;
  const { getContext, toDataURL } = HTMLCanvasElement.prototype;
  const drawImage = CanvasRenderingContext2D.prototype.drawImage, { createElement } = Document.prototype;

  const undo = []; // steps that restore a page that stays open without us
  // Replaces a native function by a proxy, which keeps its name, length and source text. A missing one stays missing.
  const install = (owner, name, instead) => {
    const found = owner && Object.getOwnPropertyDescriptor(owner, name);
    if (typeof found?.value !== "function") return;
    const value = new Proxy(found.value, { apply: (native, self, args) => instead(native, self, args) });
    Object.defineProperty(owner, name, { ...found, value });
    undo.push(() => {
      if (owner[name] === value) Object.defineProperty(owner, name, found);
    });
  };

  let waiting = later ? [] : null;
  const hook = (...hooked) => (waiting ? waiting.push(hooked) : install(...hooked));

  // --- window.print: for the app, printing is over when it returns, as in a browser; the PDF is made afterwards -----
  const MAX_SNAPSHOTS = 32;     // prints that may wait for their PDF
  const DECODE_TIMEOUT = 2000;  // ms for the images of a snapshot to load
  const snapshots = new Map(); // id → copy of the page at the call of print()
  let nextSnapshot = 0, activeSnapshot = null, restore = null;

  const copyPixels = (source, canvas) => {
    apply(drawImage, apply(getContext, canvas, ["2d"]), [source, 0, 0]);
    return canvas;
  };
  // An image stays visible after its object URL is revoked, but a copy of it could not load.
  const isRevoked = (image) => image.currentSrc.startsWith("blob:") && !liveUrls.has(image.currentSrc) && image.naturalWidth;
  const toDataUrl = (image) => apply(toDataURL, copyPixels(image, Object.assign(apply(createElement, document, ["canvas"]), {
    width: image.naturalWidth, height: image.naturalHeight,
  })), []);

  // Copies the state that cloneNode omits: pixels of canvases, selected options, open shadow trees.
  const copyHiddenState = (from, to) => {
    const originals = from.querySelectorAll("*"), copies = to.querySelectorAll("*");
    if (originals.length !== copies.length) return;
    originals.forEach((original, index) => {
      const copy = copies[index];
      if (original instanceof HTMLCanvasElement && original.width && original.height) {
        copyPixels(original, copy);
      } else if (original instanceof HTMLImageElement && isRevoked(original)) {
        copy.src = toDataUrl(original);
      } else if (original instanceof HTMLSelectElement) {
        for (const [at, option] of [...original.options].entries()) copy.options[at].selected = option.selected;
      }
      const tree = original.shadowRoot;
      if (!tree) return;
      const shadow = copy.shadowRoot ?? copy.attachShadow({ mode: "open" });
      shadow.replaceChildren(...[...tree.childNodes].map((node) => node.cloneNode(true)));
      shadow.adoptedStyleSheets = [...tree.adoptedStyleSheets];
      copyHiddenState(tree, shadow);
    });
  };

  const takeSnapshot = () => {
    const { body, documentElement: root } = document;
    if (!body || snapshots.size >= MAX_SNAPSHOTS) return null;
    const clone = body.cloneNode(true), changes = new MutationObserver(() => { snapshot.changed = true; });
    const snapshot = {
      clone, changes, changed: body.querySelector("canvas") !== null, // no observer reports changes of its pixels
      attributes: [...root.attributes].map(({ name, value }) => [name, value]), style: root.style.cssText,
      title: document.title, adopted: [...document.adoptedStyleSheets],
      sheets: [...document.styleSheets].map((sheet) => [sheet, sheet.ownerNode]),
    };
    copyHiddenState(body, clone);
    changes.observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
    return snapshot;
  };

  // Copies of style sheets that the app has removed since. Sheets of other origins cannot be read.
  const removedStyleSheets = ({ sheets }) => sheets.flatMap(([sheet, owner]) => {
    if (!owner || (owner.isConnected && owner.sheet === sheet)) return [];
    try {
      const copy = new Sheet({ media: sheet.media.mediaText });
      copy.replaceSync([...sheet.cssRules].map((rule) => rule.cssText).join("\n"));
      return [copy];
    } catch { return []; }
  });

  const applyAttributes = (root, attributes, style) => {
    for (const name of root.getAttributeNames()) if (!attributes.some(([kept]) => kept === name)) root.removeAttribute(name);
    for (const [name, value] of attributes) {
      if (name !== "style" && root.getAttribute(name) !== value) root.setAttribute(name, value);
    }
    if (root.style.cssText !== style) root.style.cssText = style; // not setAttribute: the app's policy may forbid it
  };

  // Inserts the copied body before the app's own body, which is hidden meanwhile. No element of the app is moved.
  const displaySnapshot = (snapshot) => {
    const { body, documentElement: root, title } = document, adopted = [...document.adoptedStyleSheets];
    const attributes = [...root.attributes].map(({ name, value }) => [name, value]), style = root.style.cssText;
    const styled = body.hasAttribute("style"), display = body.style.getPropertyValue("display");
    const priority = body.style.getPropertyPriority("display");
    applyAttributes(root, snapshot.attributes, snapshot.style);
    document.adoptedStyleSheets = [...snapshot.adopted, ...removedStyleSheets(snapshot)];
    if (title !== snapshot.title) document.title = snapshot.title;
    body.style.setProperty("display", "none", "important");
    body.before(snapshot.clone);
    return () => {
      snapshot.clone.remove();
      if (display) body.style.setProperty("display", display, priority);
      else body.style.removeProperty("display");
      if (!styled) body.removeAttribute("style");
      document.adoptedStyleSheets = adopted;
      if (title !== snapshot.title) document.title = title;
      applyAttributes(root, attributes, style);
    };
  };

  const restorePage = () => {
    const undo = restore;
    activeSnapshot?.changes?.disconnect();
    restore = activeSnapshot = null;
    undo?.();
  };

  // These listeners run first. They keep print events from the app while a PDF is made: it got both at its print().
  const intercept = (type, react) => apply(addEventListener, globalThis, [type, (event) => {
    if (activeSnapshot === null || !event.isTrusted) return;
    event.stopImmediatePropagation();
    react();
  }, true]);
  intercept("beforeprint", () => {
    if (!activeSnapshot.clone) return;
    const styled = activeSnapshot.adopted.length === document.adoptedStyleSheets.length &&
      activeSnapshot.adopted.every((sheet, at) => sheet === document.adoptedStyleSheets[at]);
    if (activeSnapshot.changed || activeSnapshot.changes.takeRecords().length || !styled) {
      restore = displaySnapshot(activeSnapshot);
    }
  });
  intercept("afterprint", restorePage);

  hook(globalThis, "print", (native, self, args) => {
    if (!prints) return apply(native, self, args); // the app in the frame reports its prints to the harness itself
    apply(dispatchEvent, globalThis, [new NativeEvent("beforeprint")]);
    const id = nextSnapshot++;
    try {
      const snapshot = takeSnapshot();
      if (snapshot) snapshots.set(id, snapshot);
    } catch { /* an element that cannot be copied: the page is then printed in its later state */ }
    apply(dispatchEvent, globalThis, [new NativeEvent("afterprint")]);
    emit("print", { call: currentCall(), id, title: document.title });
  });

  // --- clicks made by scripts: downloads are announced, file choosers answered ---------------------------------------
  const announceDownload = (target) => {
    const link = target instanceof Element && apply(closest, target, ["a[download], area[download]"]);
    if (link && link.href) emit("download", { call: currentCall() });
  };
  const cancelFileChooser = (target, active) => {
    const input = target instanceof HTMLLabelElement ? target.control : target;
    if (!(input instanceof HTMLInputElement) || input.type !== "file" || input.disabled || active) return;
    // Without a user gesture the browser neither opens a chooser nor fires an event, so `cancel` is fired here.
    emit("filechooser", { call: currentCall(), multiple: input.multiple, directory: input.webkitdirectory });
    setTimer(() => apply(dispatchEvent, input, [new NativeEvent("cancel", { bubbles: true })]));
  };
  const isActive = () => navigator.userActivation?.isActive;
  hook(HTMLElement.prototype, "click", (native, self, args) => {
    const active = isActive();
    announceDownload(self);
    const result = apply(native, self, args);
    cancelFileChooser(self, active);
    return result;
  });
  hook(EventTarget.prototype, "dispatchEvent", (native, self, args) => {
    if (args[0]?.type !== "click") return apply(native, self, args);
    const active = isActive();
    announceDownload(self);
    const went = apply(native, self, args);
    if (went) cancelFileChooser(self, active);
    return went;
  });
  for (const name of ["showOpenFilePicker", "showSaveFilePicker", "showDirectoryPicker"]) {
    hook(globalThis, name, () => {
      emit("filechooser", { call: currentCall(), picker: name });
      return Promise.reject(new NativeError("The user aborted a request.", "AbortError"));
    });
  }

  // --- the clipboard: content written by the app becomes an output; the system's clipboard is not changed -----------
  const recordClipboard = async (blob) => {
    const call = currentCall(), content = await hold(blob);
    emit("clipboard", { call, type: blob.type, size: blob.size, ...content });
  };
  const clipboard = globalThis.Clipboard?.prototype;
  hook(clipboard, "writeText", (native, self, args) => {
    if (!args.length) return apply(native, self, args); // throws as it should
    return recordClipboard(new NativeBlob([String(args[0])], { type: "text/plain" }));
  });
  hook(clipboard, "write", async (native, self, [items]) => {
    for (const item of items) for (const type of item.types) await recordClipboard(await item.getType(type));
  });

  // --- object URLs: a window may show one that the app revokes at once ----------------------------------------------
  const REVOKED_LIFETIME = 5000; // ms for which a revoked URL can still be resolved
  const blobsByUrl = new Map(), liveUrls = new Set();
  install(URL, "createObjectURL", (native, self, args) => {
    const url = apply(native, self, args);
    if (args[0] instanceof NativeBlob) blobsByUrl.set(url, args[0]);
    liveUrls.add(url);
    return url;
  });
  install(URL, "revokeObjectURL", (native, self, args) => {
    const url = String(args[0]);
    if (liveUrls.delete(url)) setTimer(() => blobsByUrl.delete(url), REVOKED_LIFETIME);
    return apply(native, self, args);
  });

  return {
    // Makes the next PDF show snapshot `id`, or the page itself if it has not changed since.
    async showSnapshot(id) {
      const snapshot = snapshots.get(id) ?? {};
      snapshots.delete(id);
      const decoded = [...snapshot.clone?.querySelectorAll("img") ?? []].map((image) => image.decode().catch(() => {}));
      if (decoded.length) await Promise.race([Promise.all(decoded), new Promise((resolve) => setTimer(resolve, DECODE_TIMEOUT))]);
      activeSnapshot = snapshot;
    },
    restorePage,
    watch() {
      const hooks = waiting ?? [];
      waiting = null;
      for (const hooked of hooks) install(...hooked);
    },
    unhook() { for (const step of undo.splice(0)) step(); },
    findBlob: (url) => blobsByUrl.get(url),
    // Returns a JSON list of at most one blob.
    blobOfUrl(url) {
      const blob = blobsByUrl.get(url);
      return stringify(blob ? [{ ...hold(blob), type: blob.type, size: blob.size }] : []);
    },
  };
}
