// Side effects of an app: printing, downloads, file choosers, the clipboard, object URLs that windows show.
// A function expression: agent.js calls it before the app's first script; what it returns becomes part of the agent.
// embedded.js calls it for an app in a frame, which cannot be printed (prints: false).
(side) => {
  "use strict";
  const { emit, hold, running, prints = true } = side;
  const apply = Reflect.apply, later = setTimeout.bind(globalThis);
  const NativeBlob = Blob, NativeEvent = Event, NativeError = DOMException, Sheet = CSSStyleSheet;
  const { dispatchEvent, addEventListener } = EventTarget.prototype, { closest } = Element.prototype;
  const { getContext: context, toDataURL: toData } = HTMLCanvasElement.prototype;
  const draw = CanvasRenderingContext2D.prototype.drawImage, { createElement } = Document.prototype;

  const undo = []; // what a page that goes on without us gets back
  // A proxy of a native looks like it: name, length, source text. One that is missing here stays missing.
  const hook = (owner, name, instead) => {
    const found = owner && Object.getOwnPropertyDescriptor(owner, name);
    if (typeof found?.value !== "function") return;
    const value = new Proxy(found.value, { apply: (native, self, args) => instead(native, self, args) });
    Object.defineProperty(owner, name, { ...found, value });
    undo.push(() => {
      if (owner[name] === value) Object.defineProperty(owner, name, found);
    });
  };

  // --- window.print: for the app it is done when it returns, as in a browser; the PDF is made after that -----------
  const PICTURES = 32;      // prints that may wait for their PDF
  const DECODE = 2000;      // ms for the images of a picture
  const pictures = new Map(); // id → the page as it was when print() was called
  let nextPicture = 0, shown = null, restore = null;

  const pixels = (source, canvas) => {
    apply(draw, apply(context, canvas, ["2d"]), [source, 0, 0]);
    return canvas;
  };
  // An image stays although its object URL is revoked; a copy of it could not be loaded.
  const revoked = (image) => image.currentSrc.startsWith("blob:") && !live.has(image.currentSrc) && image.naturalWidth;
  const asData = (image) => apply(toData, pixels(image, Object.assign(apply(createElement, document, ["canvas"]), {
    width: image.naturalWidth, height: image.naturalHeight,
  })), []);

  // What cloneNode leaves out: pixels of canvases, chosen options, open shadow trees.
  const complete = (from, to) => {
    const originals = from.querySelectorAll("*"), copies = to.querySelectorAll("*");
    if (originals.length !== copies.length) return;
    originals.forEach((original, index) => {
      const copy = copies[index];
      if (original instanceof HTMLCanvasElement && original.width && original.height) {
        pixels(original, copy);
      } else if (original instanceof HTMLImageElement && revoked(original)) {
        copy.src = asData(original);
      } else if (original instanceof HTMLSelectElement) {
        for (const [at, option] of [...original.options].entries()) copy.options[at].selected = option.selected;
      }
      const tree = original.shadowRoot;
      if (!tree) return;
      const shadow = copy.shadowRoot ?? copy.attachShadow({ mode: "open" });
      shadow.replaceChildren(...[...tree.childNodes].map((node) => node.cloneNode(true)));
      shadow.adoptedStyleSheets = [...tree.adoptedStyleSheets];
      complete(tree, shadow);
    });
  };

  const take = () => {
    const { body, documentElement: root } = document;
    if (!body || pictures.size >= PICTURES) return null;
    const clone = body.cloneNode(true), changes = new MutationObserver(() => { picture.changed = true; });
    const picture = {
      clone, changes, changed: body.querySelector("canvas") !== null, // its pixels change without a word
      attributes: [...root.attributes].map(({ name, value }) => [name, value]), style: root.style.cssText,
      title: document.title, adopted: [...document.adoptedStyleSheets],
      sheets: [...document.styleSheets].map((sheet) => [sheet, sheet.ownerNode]),
    };
    complete(body, clone);
    changes.observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
    return picture;
  };

  // Style sheets that the app has taken away since, in their own words; those of other origins cannot be read.
  const lost = ({ sheets }) => sheets.flatMap(([sheet, owner]) => {
    if (!owner || (owner.isConnected && owner.sheet === sheet)) return [];
    try {
      const copy = new Sheet({ media: sheet.media.mediaText });
      copy.replaceSync([...sheet.cssRules].map((rule) => rule.cssText).join("\n"));
      return [copy];
    } catch { return []; }
  });

  const dress = (root, attributes, style) => {
    for (const name of root.getAttributeNames()) if (!attributes.some(([kept]) => kept === name)) root.removeAttribute(name);
    for (const [name, value] of attributes) {
      if (name !== "style" && root.getAttribute(name) !== value) root.setAttribute(name, value);
    }
    if (root.style.cssText !== style) root.style.cssText = style; // the attribute may be forbidden by the app's policy
  };

  // The body as it was stands before the body as it is, which is hidden meanwhile: nothing of the app is moved.
  const show = (picture) => {
    const { body, documentElement: root, title } = document, adopted = [...document.adoptedStyleSheets];
    const attributes = [...root.attributes].map(({ name, value }) => [name, value]), style = root.style.cssText;
    const styled = body.hasAttribute("style"), display = body.style.getPropertyValue("display");
    const priority = body.style.getPropertyPriority("display");
    dress(root, picture.attributes, picture.style);
    document.adoptedStyleSheets = [...picture.adopted, ...lost(picture)];
    if (title !== picture.title) document.title = picture.title;
    body.style.setProperty("display", "none", "important");
    body.before(picture.clone);
    return () => {
      picture.clone.remove();
      if (display) body.style.setProperty("display", display, priority);
      else body.style.removeProperty("display");
      if (!styled) body.removeAttribute("style");
      document.adoptedStyleSheets = adopted;
      if (title !== picture.title) document.title = title;
      dress(root, attributes, style);
    };
  };

  const printed = () => {
    const undo = restore;
    shown?.changes?.disconnect();
    restore = shown = null;
    undo?.();
  };

  // These come first, and while a PDF is made the app hears nothing: it has heard both when it called print().
  const first = (type, react) => apply(addEventListener, globalThis, [type, (event) => {
    if (shown === null || !event.isTrusted) return;
    event.stopImmediatePropagation();
    react();
  }, true]);
  first("beforeprint", () => {
    if (!shown.clone) return;
    const styled = shown.adopted.length === document.adoptedStyleSheets.length &&
      shown.adopted.every((sheet, at) => sheet === document.adoptedStyleSheets[at]);
    if (shown.changed || shown.changes.takeRecords().length || !styled) {
      restore = show(shown);
    }
  });
  first("afterprint", printed);

  hook(globalThis, "print", (native, self, args) => {
    if (!prints) return apply(native, self, args); // it tells the harness
    apply(dispatchEvent, globalThis, [new NativeEvent("beforeprint")]);
    const id = nextPicture++;
    try {
      const picture = take();
      if (picture) pictures.set(id, picture);
    } catch { /* an element that refuses to be copied: then the page is printed as it will be */ }
    apply(dispatchEvent, globalThis, [new NativeEvent("afterprint")]);
    emit("print", { call: running(), id, title: document.title });
  });

  // --- clicks made by scripts: downloads are announced, file choosers answered ---------------------------------------
  const press = (target) => {
    const link = target instanceof Element && apply(closest, target, ["a[download], area[download]"]);
    if (link && link.href) emit("download", { call: running() });
  };
  const pressed = (target, active) => {
    const input = target instanceof HTMLLabelElement ? target.control : target;
    if (!(input instanceof HTMLInputElement) || input.type !== "file" || input.disabled || active) return;
    // Without a user's gesture the browser opens no chooser, and tells the app nothing either.
    emit("filechooser", { call: running(), multiple: input.multiple, directory: input.webkitdirectory });
    later(() => apply(dispatchEvent, input, [new NativeEvent("cancel", { bubbles: true })]));
  };
  const isActive = () => navigator.userActivation?.isActive;
  hook(HTMLElement.prototype, "click", (native, self, args) => {
    const active = isActive();
    press(self);
    const result = apply(native, self, args);
    pressed(self, active);
    return result;
  });
  hook(EventTarget.prototype, "dispatchEvent", (native, self, args) => {
    if (args[0]?.type !== "click") return apply(native, self, args);
    const active = isActive();
    press(self);
    const went = apply(native, self, args);
    if (went) pressed(self, active);
    return went;
  });
  for (const name of ["showOpenFilePicker", "showSaveFilePicker", "showDirectoryPicker"]) {
    hook(globalThis, name, () => {
      emit("filechooser", { call: running(), picker: name });
      return Promise.reject(new NativeError("The user aborted a request.", "AbortError"));
    });
  }

  // --- the clipboard: what is written becomes an output, the system's own stays as it is ----------------------------
  const copied = async (blob) => {
    const call = running(), kept = await hold(blob);
    emit("clipboard", { call, type: blob.type, size: blob.size, ...kept });
  };
  const clipboard = globalThis.Clipboard?.prototype;
  hook(clipboard, "writeText", (native, self, args) => {
    if (!args.length) return apply(native, self, args); // throws as it should
    return copied(new NativeBlob([String(args[0])], { type: "text/plain" }));
  });
  hook(clipboard, "write", async (native, self, [items]) => {
    for (const item of items) for (const type of item.types) await copied(await item.getType(type));
  });

  // --- object URLs: a window may show one that is revoked at once ---------------------------------------------------
  const KEPT = 5000; // ms after it was revoked
  const blobs = new Map(), live = new Set();
  hook(URL, "createObjectURL", (native, self, args) => {
    const url = apply(native, self, args);
    if (args[0] instanceof NativeBlob) blobs.set(url, args[0]);
    live.add(url);
    return url;
  });
  hook(URL, "revokeObjectURL", (native, self, args) => {
    const url = String(args[0]);
    if (live.delete(url)) later(() => blobs.delete(url), KEPT);
    return apply(native, self, args);
  });

  return {
    // The next PDF shows picture `id`, or the page itself if nothing in it has changed since.
    async picture(id) {
      const picture = pictures.get(id) ?? {};
      pictures.delete(id);
      const decoded = [...picture.clone?.querySelectorAll("img") ?? []].map((image) => image.decode().catch(() => {}));
      if (decoded.length) await Promise.race([Promise.all(decoded), new Promise((resolve) => later(resolve, DECODE))]);
      shown = picture;
    },
    printed,
    unhook() { for (const step of undo.splice(0)) step(); },
    opened(url) {
      const blob = blobs.get(url);
      return blob ? { ...hold(blob), type: blob.type, size: blob.size } : null;
    },
  };
}
