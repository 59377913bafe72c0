// Native functions, saved so that a page that replaces them later does not break our scripts. Every script of this folder
// gets them from here, and uses no other after its start (tests/test_page_scripts.py).
// A function expression, called as natives(late). Before the page's first script the page's own are saved. If scripts of
// the page have run already (late), natives that they replaced come from a fresh frame, which is removed again at once.
// Methods and getters of a prototype become functions of the object: `listPush(list, item)`, `documentTitle(document)`.
// A native that the browser has not is undefined.
(late) => {
  "use strict";
  // Prefix of the names, and methods and getters of the prototype; `name=` is a setter.
  const PROTOTYPES = {
    Array: ["list", "every find forEach includes join push some"],
    String: ["text", "includes isWellFormed replaceAll slice split startsWith toWellFormed valueOf"],
    Object: ["object", "isPrototypeOf toString"],
    Function: ["function", "toString"],
    RegExp: ["regExp", "exec"],
    Number: ["number", "toString valueOf"],
    Boolean: ["boolean", "valueOf"],
    BigInt: ["bigInt", "valueOf"],
    Map: ["map", "forEach size"],
    Set: ["set", "forEach size"],
    ArrayBuffer: ["buffer", "byteLength detached resizable"],
    SharedArrayBuffer: ["shared", "byteLength"],
    DataView: ["dataView", "buffer byteLength byteOffset"],
    Uint8Array: ["bytes", "toBase64"],
    TextEncoder: ["encoder", "encode"],
    Blob: ["blob", "arrayBuffer size slice type"],
    File: ["file", "name"],
    FileList: ["files", "item"],
    ReadableStream: ["stream", "locked"],
    Response: ["response", "blob ok"],
    Performance: ["performance", "now"],
    EventTarget: ["target", "addEventListener dispatchEvent removeEventListener"],
    Event: ["event", "defaultPrevented preventDefault stopImmediatePropagation target type"],
    MessageEvent: ["message", "data origin source"],
    MessageChannel: ["channel", "port1 port2"],
    MessagePort: ["port", "postMessage start"],
    AbortController: ["controller", "abort signal"],
    AbortSignal: ["signal", "aborted"],
    MutationObserver: ["observer", "disconnect observe takeRecords"],
    Node: ["node", "baseURI childNodes cloneNode isConnected ownerDocument"],
    NodeList: ["nodes", "length"],
    HTMLCollection: ["collection", "length"],
    NamedNodeMap: ["attributes", "length"],
    Attr: ["attribute", "name value"],
    Document: ["document", "adoptedStyleSheets adoptedStyleSheets= body createElementNS defaultView documentElement forms querySelector querySelectorAll readyState styleSheets title title= visibilityState"],
    ShadowRoot: ["shadow", "adoptedStyleSheets adoptedStyleSheets="],
    DocumentFragment: ["fragment", "querySelectorAll replaceChildren"],
    Element: ["element", "append attachShadow attributes before closest getAttribute getAttributeNames hasAttribute localName querySelector querySelectorAll remove removeAttribute setAttribute shadowRoot tagName"],
    HTMLElement: ["html", "click style"],
    HTMLAnchorElement: ["anchor", "href origin protocol"],
    HTMLFormElement: ["form", "elements"],
    HTMLInputElement: ["input", "disabled files multiple type type= webkitdirectory"],
    HTMLLabelElement: ["label", "control"],
    HTMLSelectElement: ["select", "options"],
    HTMLOptionsCollection: ["options", "length"],
    HTMLOptionElement: ["option", "selected selected="],
    HTMLImageElement: ["image", "currentSrc decode loading naturalHeight naturalWidth src="],
    HTMLIFrameElement: ["frame", "allow= contentWindow src="],
    HTMLCanvasElement: ["canvas", "getContext height height= toDataURL width width="],
    CanvasRenderingContext2D: ["context", "drawImage"],
    CSSStyleDeclaration: ["style", "cssText cssText= getPropertyPriority getPropertyValue removeProperty setProperty"],
    StyleSheetList: ["sheets", "length"],
    StyleSheet: ["sheet", "media ownerNode"],
    CSSStyleSheet: ["sheet", "cssRules replaceSync"],
    CSSRuleList: ["rules", "length"],
    CSSRule: ["rule", "cssText"],
    MediaList: ["media", "mediaText"],
    HTMLStyleElement: ["styleElement", "sheet"],
    HTMLLinkElement: ["linkElement", "sheet"],
    Navigator: ["navigator", "permissions userActivation"],
    Permissions: ["permissions", "query"],
    PermissionStatus: ["permissionStatus", "state"],
    Scheduler: ["scheduler", "postTask"],
    UserActivation: ["activation", "isActive"],
    ClipboardItem: ["clipboardItem", "getType types"],
  };
  const STATICS = {
    Object: "freeze hasOwn isFrozen keys",
    Reflect: "apply construct defineProperty getOwnPropertyDescriptor getPrototypeOf ownKeys set",
    Array: "from isArray",
    Error: "isError",
    ArrayBuffer: "isView",
    Number: "isFinite isInteger isSafeInteger",
    JSON: "parse rawJSON stringify",
    Math: "ceil max min random",
    Date: "now",
    Uint8Array: "fromBase64",
    URL: "createObjectURL revokeObjectURL",
  };
  const CLASSES = "AbortController BigInt Blob CSSStyleSheet CustomEvent DOMException Error Event MessageChannel MutationObserver " +
    "Proxy Response String TextEncoder TypeError Uint8Array";
  const COLLECTIONS = "Map Set WeakMap WeakSet"; // of our own, with methods that no page can replace
  const FUNCTIONS = "decodeURIComponent fetch requestAnimationFrame setTimeout"; // of the window
  const OPTIONAL = /Scheduler|SharedArrayBuffer|ClipboardItem|Permission|ReadableStream|resizable|detached|Base64|rawJSON|isError/; // not everywhere
  const FRAME = "abp-natives", HTML = "http://www.w3.org/1999/xhtml";

  const page = window; // cannot be replaced, as document and location cannot
  if (page.name === FRAME && page !== page.top) return undefined;

  // --- a fresh frame -----------------------------------------------------------------------------------------------------
  const attempt = (work) => { try { return work(); } catch { return undefined; } };
  // Each way in turn, as each uses functions that the page may have replaced. Some frameworks know only one of them.
  const INSERTIONS = [
    () => {
      const frame = Document.prototype.createElementNS.call(document, HTML, "iframe");
      frame.name = FRAME;
      Node.prototype.appendChild.call(document.documentElement, frame);
      return frame;
    },
    () => {
      const frame = document.createElement("iframe");
      frame.setAttribute("name", FRAME);
      document.documentElement.append(frame);
      return frame;
    },
    () => {
      const root = document.firstElementChild;
      root.insertAdjacentHTML("beforeend", `<iframe xmlns="${HTML}" name="${FRAME}"></iframe>`);
      return root.lastElementChild;
    },
  ];
  const windowOf = (frame) => {
    const found = attempt(() => frame.contentWindow);
    if (attempt(() => found.frameElement) === frame) return found;
    for (let index = 0; page[index] !== undefined; index += 1) {
      if (attempt(() => page[index].frameElement) === frame) return page[index];
    }
    return undefined; // a page without an origin, for example, cannot look into its frames
  };
  const openFrame = () => {
    for (let way = 0; way < INSERTIONS.length; way += 1) {
      const frame = attempt(INSERTIONS[way]), realm = windowOf(frame);
      const call = attempt(() => realm.Reflect.apply), remove = attempt(() => realm.Element.prototype.remove);
      if (call && remove) return { realm, takeAway: () => call(remove, frame, []) };
      attempt(() => frame.remove());
    }
    return { realm: null, takeAway() {} };
  };

  // --- what is saved -----------------------------------------------------------------------------------------------------
  // `fresh` is the window of a fresh frame, or null.
  const saveNatives = (fresh) => {
    const sure = fresh ?? page;
    const { apply, getOwnPropertyDescriptor, defineProperty, getPrototypeOf, ownKeys } = sure.Reflect, { setPrototypeOf } = sure.Object;
    const { bind, call, toString } = sure.Function.prototype, { exec } = sure.RegExp.prototype;
    const { split, slice, toUpperCase } = sure.String.prototype;
    const uncurry = apply(bind, bind, [call]), { asyncIterator, iterator, toStringTag } = sure.Symbol;
    const words = (text) => apply(split, text, [" "]);
    const each = (items, work) => { for (let index = 0; index < items.length; index += 1) work(items[index]); };

    const matches = (pattern, text) => apply(exec, pattern, [text]) !== null;
    const sourceOf = (value) => apply(toString, value, []);
    const foreign = []; // natives of the fresh frame
    // The native that `read` finds in a window. One of the page itself is preferred: what it makes is of the page's kinds.
    const pick = (name, read) => {
      const found = attempt(() => read(page));
      if (fresh === null) {
        if (late && typeof found !== "function" && !matches(OPTIONAL, name)) throw `the page replaced ${name}`;
        return found;
      }
      const native = attempt(() => read(fresh));
      if (typeof native !== "function") {
        if (!matches(OPTIONAL, name)) throw `the page replaced ${name}`; // in its frames too
        return undefined;
      }
      if (typeof found === "function" && sourceOf(found) === sourceOf(native)) return found;
      foreign[foreign.length] = native;
      return native;
    };

    const natives = { __proto__: null };
    const { keys } = sure.Object;
    each(keys(PROTOTYPES), (type) => {
      const prefix = PROTOTYPES[type][0];
      each(words(PROTOTYPES[type][1]), (entry) => {
        const isSetter = apply(slice, entry, [-1]) === "=", name = isSetter ? apply(slice, entry, [0, -1]) : entry;
        const native = pick(`${type}.prototype.${name}`, (realm) => {
          const property = getOwnPropertyDescriptor(realm[type].prototype, name);
          return isSetter ? property.set : property.get ?? property.value;
        });
        const title = apply(toUpperCase, name[0], []) + apply(slice, name, [1]);
        const saved = isSetter ? `set${apply(toUpperCase, prefix[0], [])}${apply(slice, prefix, [1])}${title}` : prefix + title;
        natives[saved] = native && uncurry(native);
      });
    });
    each(keys(STATICS), (owner) => each(words(STATICS[owner]), (name) => {
      natives[name] = pick(`${owner}.${name}`, (realm) => realm[owner][name]);
    }));
    const isNative = (value, name) => attempt(() => sourceOf(value) === sourceOf(sure[name]));
    // The native class, also if the page wrapped it in a subclass, a proxy or a function with its prototype.
    const classOf = (realm, name) => {
      const Class = realm[name];
      if (isNative(Class, name)) return Class;
      const Parent = attempt(() => getPrototypeOf(Class));
      if (isNative(Parent, name)) return Parent;
      return attempt(() => Class.prototype.constructor);
    };
    each(words(CLASSES), (name) => { natives[name] = pick(name, (realm) => classOf(realm, name)); });
    // A promise of a window that has gone never settles. That of an async function is the page's, whatever Promise is.
    natives.Promise = pick("Promise", (realm) => {
      const Class = classOf(realm, "Promise");
      return isNative(Class, "Promise") ? Class : getPrototypeOf((async () => {})()).constructor;
    });
    each(words(FUNCTIONS), (name) => {
      const native = pick(name, (realm) => realm[name]);
      natives[name] = native && apply(bind, native, [page]);
    });
    each(words(COLLECTIONS), (name) => {
      const Native = pick(name, () => sure[name]);
      const Collection = class extends Native { constructor() { super(); } };
      const { prototype } = Collection;
      each(ownKeys(Native.prototype), (key) => {
        if (key !== "constructor") defineProperty(prototype, key, getOwnPropertyDescriptor(Native.prototype, key));
      });
      setPrototypeOf(prototype, null);
      natives[name] = Collection;
    });

    // --- what is made of them ----------------------------------------------------------------------------------------------
    const typedArray = getPrototypeOf(sure.Uint8Array.prototype);
    const typedArrayAt = uncurry(typedArray.at);
    const postTo = uncurry(pick("postMessage", (realm) => realm.postMessage)); // with the window that gets the message
    const eventOf = uncurry(pick("event", (realm) => getOwnPropertyDescriptor(realm, "event").get));
    const ofTypedArrays = (name) => uncurry(getOwnPropertyDescriptor(typedArray, name).get);
    const { Promise, setTimeout, now, performanceNow } = natives;
    // What our scripts watch, by its name in the window of the page.
    const ofPage = { __proto__: null };
    each(words("Blob Clipboard CookieStore Document EventTarget FileReader HTMLCanvasElement HTMLElement HTMLImageElement MediaDevices MessagePort Navigator Notification Object Response ServiceWorkerRegistration SubmitEvent URL XMLHttpRequest isSecureContext name navigator parent performance scheduler"), (name) => {
      ofPage[name] = attempt(() => page[name]);
    });
    const hasClock = attempt(() => performanceNow(ofPage.performance)) !== undefined;
    const mapIteratorNext = uncurry(getPrototypeOf(new sure.Map().keys()).next);
    const prototypeOf = (type) => sure[type]?.prototype;
    return natives.freeze({
      __proto__: null,
      ...natives,
      postMessage: postTo,
      currentEvent: () => eventOf(page), // whose listener is running, with its microtasks
      typedArrayKind: ofTypedArrays(toStringTag), // its name; undefined for anything else
      typedArrayBuffer: ofTypedArrays("buffer"), typedArrayOffset: ofTypedArrays("byteOffset"),
      typedArraySize: ofTypedArrays("byteLength"), typedArrayLength: ofTypedArrays("length"),
      typedArrayAt,
      // Prototypes by which values of the page are told apart.
      plainPrototype: getPrototypeOf({}), listPrototype: getPrototypeOf([]),
      blobPrototype: natives.Blob.prototype, errorPrototype: prototypeOf("Error"), mapPrototype: prototypeOf("Map"), setPrototype: prototypeOf("Set"),
      ofPage,
      origin: sure.origin,
      // Whether a native is not of this window: what such a one makes belongs to a window that has gone.
      isForeign(native) {
        let found = false;
        each(foreign, (other) => { found ||= other === native; });
        return found;
      },
      matches,
      isAsyncIterable: (object) => attempt(() => asyncIterator in object) === true,
      // The iterator is the list's own: a browser's function that takes a sequence asks for it.
      sequence: (items) => ({
        __proto__: null,
        [iterator]() {
          let index = 0;
          const next = () => {
            const done = index === items.length;
            return { __proto__: null, done, value: done ? undefined : items[index++] };
          };
          return { __proto__: null, next };
        },
      }),
      firstKey: (map) => mapIteratorNext(map.keys()).value,
      valuesOf(collection) {
        const values = [];
        collection.forEach((value) => { values[values.length] = value; });
        return values;
      },
      lastKey(map) {
        let last = null;
        map.forEach((_, key) => { last = key; });
        return last;
      },
      // In documents of SVG and XML, document.createElement makes elements that are not of HTML.
      createHtmlElement: (name) => natives.documentCreateElementNS(document, HTML, name),
      setMember: (target, key, value) =>
        defineProperty(target, key, { __proto__: null, value, enumerable: true, configurable: true, writable: true }),
      // Lists as Array.prototype.map and filter make them, without asking the items for their class.
      mapList(items, work) {
        const mapped = [];
        for (let index = 0; index < items.length; index += 1) mapped[index] = work(items[index], index);
        return mapped;
      },
      filterList(items, accepts) {
        const kept = [];
        for (let index = 0; index < items.length; index += 1) if (accepts(items[index], index)) kept[kept.length] = items[index];
        return kept;
      },
      // Replaces a native function, or with `key` a getter or setter, by a proxy, which keeps its name, length and source text. A
      // missing or fixed one stays. Returns a function that puts the native back.
      installProxy(owner, name, instead, key = "value") {
        const property = { __proto__: null, ...owner && getOwnPropertyDescriptor(owner, name) };
        if (typeof property[key] !== "function") return undefined;
        const installed = new natives.Proxy(property[key], { __proto__: null,
          apply: (native, self, args) => instead(native, self, args),
          construct: (native, args, target) => instead(native, undefined, args, target),
        });
        if (!defineProperty(owner, name, { __proto__: null, ...property, [key]: installed })) return undefined;
        return () => {
          if (getOwnPropertyDescriptor(owner, name)?.[key] === installed) defineProperty(owner, name, property);
        };
      },
      clock: hasClock ? () => performanceNow(ofPage.performance) : now, // ms
      quietly: attempt,
      wait: (milliseconds) => new Promise((resolve) => {
        setTimeout(resolve, milliseconds, undefined);
        // Tests stop the clock of a page (page.clock), and with it its timers.
        const options = { __proto__: null, delay: milliseconds + 100 };
        const resolveInTask = async () => {
          try { await natives.schedulerPostTask(ofPage.scheduler, () => resolve(), options); } catch { /* none, or the page's own */ }
        };
        resolveInTask();
      }),
      // The outcome of the first of several values or promises to be ready. Promise.race would look up methods of the page.
      firstOf: (...waited) => new Promise((resolve, reject) => {
        each(waited, async (value) => { try { resolve(await value); } catch (error) { reject(error); } });
      }),
      // The words of something thrown, which may be anything: with its name, and its message alone.
      wordsOf(thrown) {
        try { return natives.textToWellFormed(natives.String(thrown)); } catch { return "an error that cannot be read"; }
      },
      messageOf(thrown) {
        try { return natives.textToWellFormed(natives.String(thrown?.message || thrown)); } catch { return "an error that cannot be read"; }
      },
    });
  };

  // Its functions are read while it is there; they work when it has gone.
  const { realm, takeAway } = late ? openFrame() : { realm: null, takeAway() {} };
  try { return saveNatives(realm); } finally { takeAway(); }
}
