// Side effects of an app: printing, downloads, file choosers, the clipboard, object URLs that windows show.
// A function expression: agent.js calls it before the app's first script and adds the returned methods to the agent.
// embedded.js calls it for an app in a frame, which cannot be printed (prints: false). With `later`, everything but object
// URLs is hooked only when watch() is called.
// Our own faults never reach the app: the replacement of a native function throws only what the native function throws.
(host) => {
  "use strict";
  const { natives, toJson, emit, hold, currentCall, startingCall, ownMicrotasks, isUnderWay, within, prints = true, later = false } = host;
  const {
    Blob, CSSStyleSheet, DOMException, Event, Map, MutationObserver, Promise, Proxy, Set, String, TypeError, activationIsActive, anchorHref, anchorOrigin, anchorProtocol, apply,
    attributeName, attributeValue, attributesLength, blobSize, blobType, canvasGetContext, canvasHeight, canvasToDataURL,
    canvasWidth, ceil, clipboardItemGetType, clipboardItemTypes, clock, construct, contextDrawImage, createHtmlElement, createObjectURL, defineProperty, documentAdoptedStyleSheets,
    documentBody, documentDocumentElement, documentStyleSheets, documentTitle, documentVisibilityState, elementAttachShadow,
    elementAttributes, elementBefore, elementClosest, elementGetAttribute, elementGetAttributeNames, elementHasAttribute,
    elementLocalName, elementQuerySelector, elementQuerySelectorAll, elementRemove, elementRemoveAttribute,
    elementSetAttribute, elementShadowRoot, eventDefaultPrevented, eventPreventDefault, eventStopImmediatePropagation, eventType, filterList, firstOf,
    fileName, fragmentQuerySelectorAll, fragmentReplaceChildren, from, getOwnPropertyDescriptor, getPrototypeOf, hasOwn, htmlClick, htmlStyle, imageCurrentSrc,
    imageDecode, imageLoading, imageNaturalHeight, imageNaturalWidth, inputDisabled, inputMultiple, inputType, inputWebkitdirectory,
    installProxy, isArray, isForeign, labelControl, linkElementSheet, listEvery, listForEach, listJoin, listPush, mapList, max, min,
    mediaMediaText, navigatorPermissions, navigatorUserActivation, nodeChildNodes, nodeCloneNode, nodeIsConnected, nodeOwnerDocument, nodesLength,
    observerDisconnect, observerObserve, observerTakeRecords, ofPage, optionSelected, optionsLength, origin, ownKeys, permissionStatusState, permissionsQuery, quietly, ruleCssText,
    requestAnimationFrame, revokeObjectURL, rulesLength, selectOptions, sequence, setCanvasHeight, setCanvasWidth, setDocumentAdoptedStyleSheets, setDocumentTitle,
    setImageSrc, setOptionSelected, setShadowAdoptedStyleSheets, setStyleCssText, setTimeout, shadowAdoptedStyleSheets,
    sheetCssRules, sheetMedia, sheetOwnerNode, sheetReplaceSync, sheetsLength, styleCssText, styleElementSheet,
    styleGetPropertyPriority, styleGetPropertyValue, styleRemoveProperty, styleSetProperty, targetAddEventListener,
    targetDispatchEvent, targetRemoveEventListener, textStartsWith, textToWellFormed, wait,
  } = natives;

  const undo = []; // steps that restore a page that stays open without us
  let hooked = true; // until then
  const install = (owner, name, instead, key) => quietly(() => {
    const putBack = installProxy(owner, name, instead, key);
    if (putBack) listPush(undo, putBack);
  });

  let waiting = later ? [] : null;
  const hook = (owner, name, instead, key) => {
    if (waiting) listPush(waiting, () => install(owner, name, instead, key));
    else install(owner, name, instead, key);
  };

  // --- window.print: for the app, printing is over when it returns, as in a browser; the PDF is made afterwards -----
  const MAX_SNAPSHOTS = 32;     // prints that may wait for their PDF
  const DECODE_TIMEOUT = 2000;  // ms for the images of a snapshot to load
  const snapshots = new Map(); // id → copy of the page at the call of print()
  let nextSnapshot = 0, activeSnapshot = null, restore = null;

  // The items of a collection of the browser.
  const listOf = (collection, length) => {
    const items = [];
    for (let index = 0; index < length; index += 1) items[index] = collection[index];
    return items;
  };
  const nodesIn = (nodes) => listOf(nodes, nodesLength(nodes));
  const elementsIn = (element, selector) => nodesIn(elementQuerySelectorAll(element, selector));
  const adoptedBy = (sheets) => listOf(sheets, sheets.length);

  const copyPixels = (source, canvas) => {
    contextDrawImage(canvasGetContext(canvas, "2d"), source, 0, 0);
    return canvas;
  };
  // An image stays visible after its object URL is revoked, but a copy of it could not load.
  const isRevoked = (image) => {
    const source = imageCurrentSrc(image);
    return textStartsWith(source, "blob:") && !liveUrls.has(source) && imageNaturalWidth(image);
  };
  const toDataUrl = (image) => {
    const canvas = createHtmlElement("canvas");
    setCanvasWidth(canvas, imageNaturalWidth(image));
    setCanvasHeight(canvas, imageNaturalHeight(image));
    return canvasToDataURL(copyPixels(image, canvas));
  };
  const copySelection = (original, copy) => {
    const options = selectOptions(original), copies = selectOptions(copy);
    for (let index = 0; index < optionsLength(options); index += 1) {
      setOptionSelected(copies[index], optionSelected(options[index]));
    }
  };
  const copyShadow = (tree, copy) => {
    const shadow = elementShadowRoot(copy) ?? elementAttachShadow(copy, { __proto__: null, mode: "open" });
    const args = [shadow];
    listForEach(nodesIn(nodeChildNodes(tree)), (node) => listPush(args, nodeCloneNode(node, true)));
    apply(fragmentReplaceChildren, undefined, args);
    setShadowAdoptedStyleSheets(shadow, sequence(adoptedBy(shadowAdoptedStyleSheets(tree))));
    copyHiddenState(nodesIn(fragmentQuerySelectorAll(tree, "*")), nodesIn(fragmentQuerySelectorAll(shadow, "*")));
  };
  // Copies the state that cloneNode omits: pixels of canvases, selected options, open shadow trees.
  const copyHiddenState = (originals, copies) => {
    if (originals.length !== copies.length) return;
    listForEach(originals, (original, index) => {
      const copy = copies[index], tree = elementShadowRoot(original);
      switch (elementLocalName(original)) {
        case "canvas":
          if (quietly(() => canvasWidth(original) && canvasHeight(original))) copyPixels(original, copy);
          break;
        case "img":
          if (quietly(() => isRevoked(original))) setImageSrc(copy, toDataUrl(original));
          break;
        case "select": quietly(() => copySelection(original, copy)); break;
        // Loaded again, they would act again: send requests, begin downloads.
        case "iframe": case "frame": case "embed":
          listForEach(["src", "srcdoc"], (name) => elementRemoveAttribute(copy, name));
          break;
        case "object": // without an address its fallback would be printed
          elementSetAttribute(copy, "data", "about:blank");
          elementSetAttribute(copy, "type", "text/html");
      }
      if (tree) copyShadow(tree, copy);
    });
  };

  const attributesOf = (root) => {
    const attributes = elementAttributes(root);
    return mapList(listOf(attributes, attributesLength(attributes)), (attribute) => [attributeName(attribute), attributeValue(attribute)]);
  };
  const stateOf = (root) => ({
    attributes: attributesOf(root), style: styleCssText(htmlStyle(root)), title: documentTitle(document),
    adopted: adoptedBy(documentAdoptedStyleSheets(document)),
  });
  const takeSnapshot = () => {
    const body = documentBody(document);
    if (!body || snapshots.size >= MAX_SNAPSHOTS) return null;
    const clone = nodeCloneNode(body, true);
    const changes = new MutationObserver(() => { snapshot.changed = true; });
    const sheets = documentStyleSheets(document);
    const snapshot = {
      clone, changes, state: stateOf(documentDocumentElement(document)),
      // no observer reports changes of the pixels of a canvas, and one of another window none at all
      changed: isForeign(MutationObserver) || elementQuerySelector(body, "canvas") !== null,
      sheets: mapList(listOf(sheets, sheetsLength(sheets)), (sheet) => [sheet, sheetOwnerNode(sheet)]),
    };
    copyHiddenState(elementsIn(body, "*"), elementsIn(clone, "*"));
    observerObserve(changes, document, { __proto__: null, subtree: true, childList: true, attributes: true, characterData: true });
    return snapshot;
  };

  const sheetOf = (owner) => quietly(() => styleElementSheet(owner)) ?? quietly(() => linkElementSheet(owner));
  // Copies of style sheets that the app has removed since. Sheets of other origins cannot be read.
  const removedStyleSheets = ({ sheets }) => {
    const copies = [];
    listForEach(sheets, (entry) => quietly(() => {
      const sheet = entry[0], owner = entry[1];
      if (!owner || (nodeIsConnected(owner) && sheetOf(owner) === sheet) || isForeign(CSSStyleSheet)) return;
      const copy = new CSSStyleSheet({ __proto__: null, media: mediaMediaText(sheetMedia(sheet)) }), rules = sheetCssRules(sheet);
      sheetReplaceSync(copy, listJoin(mapList(listOf(rules, rulesLength(rules)), ruleCssText), "\n"));
      listPush(copies, copy);
    }));
    return copies;
  };

  const applyState = (root, { attributes, style, title, adopted }, moreSheets) => {
    listForEach(elementGetAttributeNames(root), (name) => {
      if (listEvery(attributes, (kept) => kept[0] !== name)) elementRemoveAttribute(root, name);
    });
    listForEach(attributes, (entry) => {
      const name = entry[0], value = entry[1];
      if (name !== "style" && elementGetAttribute(root, name) !== value) elementSetAttribute(root, name, value);
    });
    if (styleCssText(htmlStyle(root)) !== style) setStyleCssText(htmlStyle(root), style); // not setAttribute: the app's policy may forbid it
    const sheets = adoptedBy(adopted);
    listForEach(moreSheets, (sheet) => listPush(sheets, sheet));
    setDocumentAdoptedStyleSheets(document, sequence(sheets));
    if (documentTitle(document) !== title) setDocumentTitle(document, title);
  };

  // Inserts the copied body before the app's own body, which is hidden meanwhile. No element of the app is moved.
  const displaySnapshot = (snapshot) => {
    const body = documentBody(document), root = documentDocumentElement(document), before = stateOf(root);
    const styled = elementHasAttribute(body, "style"), style = htmlStyle(body);
    const display = styleGetPropertyValue(style, "display"), priority = styleGetPropertyPriority(style, "display");
    applyState(root, snapshot.state, removedStyleSheets(snapshot));
    styleSetProperty(style, "display", "none", "important");
    elementBefore(body, snapshot.clone);
    return () => {
      elementRemove(snapshot.clone);
      if (display) styleSetProperty(style, "display", display, priority);
      else styleRemoveProperty(style, "display");
      if (!styled) elementRemoveAttribute(body, "style");
      applyState(root, before, []);
    };
  };

  const restorePage = () => {
    const putBack = restore, { changes } = activeSnapshot ?? {};
    if (changes) observerDisconnect(changes);
    restore = activeSnapshot = null;
    putBack?.();
  };

  // These listeners run first. They keep print events from the app while a PDF is made: it got both at its print().
  const intercept = (type, react) => targetAddEventListener(window, type, (event) => {
    if (activeSnapshot === null || !event.isTrusted) return;
    eventStopImmediatePropagation(event);
    quietly(react);
  }, true);
  intercept("beforeprint", () => {
    if (!activeSnapshot.clone) return;
    const { adopted } = activeSnapshot.state, sheets = documentAdoptedStyleSheets(document);
    const styled = adopted.length === sheets.length && listEvery(adopted, (sheet, index) => sheet === sheets[index]);
    if (activeSnapshot.changed || observerTakeRecords(activeSnapshot.changes).length || !styled) {
      restore = displaySnapshot(activeSnapshot);
    }
  });
  intercept("afterprint", restorePage);

  hook(window, "print", (native, self, args) => {
    if (!prints) return apply(native, self, args); // the app in the frame reports its prints to the harness itself
    targetDispatchEvent(window, new Event("beforeprint"));
    const id = nextSnapshot++, snapshot = quietly(takeSnapshot) ?? null;
    if (snapshot) snapshots.set(id, snapshot);
    targetDispatchEvent(window, new Event("afterprint"));
    quietly(() => emit("print", { call: currentCall(), id, kept: snapshot !== null, title: textToWellFormed(documentTitle(document)) }));
  });

  // A window gives no PDF: its print() is reported, and the call warns of it. Its scripts wait for the events, too.
  const reportPrint = (opened) => {
    if (opened.top !== opened) return; // a frame reports its own
    const property = getOwnPropertyDescriptor(opened, "print");
    const print = new Proxy(property.value, { __proto__: null,
      apply: (native, self, args) => {
        if (!hooked) return apply(native, self, args);
        targetDispatchEvent(opened, new Event("beforeprint"));
        targetDispatchEvent(opened, new Event("afterprint"));
        quietly(() => emit("windowprint", { call: currentCall() }));
      },
    });
    defineProperty(opened, "print", { __proto__: null, ...property, value: print });
  };
  hook(window, "open", (native, self, args) => {
    const opened = apply(native, self, args);
    if (opened && opened !== window) quietly(() => reportPrint(opened));
    return opened;
  });

  // --- what a call leaves for a later turn: libraries click a download link in a timer of 0 ms (FileSaver.js) ---------
  const SHORT = 10; // ms of the longest timer that a call's answer waits for
  const LONG = 100; // … if the handler sets it (DataTables), once the call has clicked, or made an object URL that no link has
                    // downloaded yet (download.js: 66 ms)
  let urlMaker = null; // that call
  let clicker = null;  // the latest call that has clicked something, which may begin work of any kind
  let due = 0;      // time of the latest short timer, message or object URL of a call
  let expectedAt = 0; // when that was set, sent or made
  const expectSoon = (call, delay) => {
    if (!isUnderWay(call)) return;
    expectedAt = clock();
    due = max(due, expectedAt + delay);
  };
  hook(window, "setTimeout", (native, self, args) => {
    const callback = args[0], delay = args[1] ?? 0, call = currentCall();
    if (call === null || typeof callback !== "function") return apply(native, self, args);
    const longest = call === startingCall() || call === urlMaker || call === clicker ? LONG : SHORT;
    if (typeof delay === "number" && !(delay > longest)) expectSoon(call, max(0, delay || 0));
    const callbackArgs = filterList(args, (_, index) => index > 1);
    return apply(native, self, [() => within(call, () => apply(callback, window, callbackArgs)), delay]);
  });

  // React runs the effects of a changed state in messages.
  hook(ofPage.MessagePort?.prototype, "postMessage", (native, self, args) => {
    expectSoon(currentCall(), 0);
    return apply(native, self, args);
  });

  // --- content that is still loaded or made when a call is answered: what a click on an export button leaves behind ---
  const UNFINISHED_TIMEOUT = 2000; // ms for which the answer of a call waits for it
  const unfinished = new Map(); // call → {running: number of its operations, onFinished: called after the last one}
  const nothing = () => {};
  // Notes that an operation of a call begins; returns a function to be called once, when it has ended.
  const beginOperation = (call) => {
    if (!isUnderWay(call)) return undefined;
    if (!unfinished.has(call)) unfinished.set(call, { running: 0, onFinished: nothing });
    const operations = unfinished.get(call);
    operations.running += 1;
    return () => {
      operations.running -= 1;
      if (operations.running > 0) return;
      unfinished.delete(call);
      operations.onFinished();
    };
  };
  let inFrame = false; // a frame requested in a frame is an animation, which brings no file
  hook(window, "requestAnimationFrame", (native, self, args) => {
    // A frame of an animation belongs to the call that is under way then, not to the one that began the animation.
    const callback = args[0], call = inFrame ? null : currentCall();
    if (typeof callback !== "function") return apply(native, self, args);
    const request = apply(native, self, [(time) => {
      inFrame = true;
      try { within(call, () => apply(callback, undefined, [time])); } finally { inFrame = false; }
    }]);
    // A frame of our own ends the wait, as the page may cancel its own. A hidden page gets no frames.
    const end = documentVisibilityState(document) === "visible" ? beginOperation(call) : undefined;
    if (end) requestAnimationFrame(end);
    return request;
  });
  // An <embed>, as of a PDF, is loaded after the next layout.
  let embeds = 0; // after the last call
  const expectEmbeds = (call) => {
    const before = embeds;
    embeds = quietly(() => nodesLength(elementQuerySelectorAll(documentDocumentElement(document), "embed"))) ?? 0;
    if (embeds <= before || documentVisibilityState(document) !== "visible") return;
    const end = beginOperation(call);
    if (end) requestAnimationFrame(() => requestAnimationFrame(end));
  };
  const finished = (call) => new Promise((resolve) => { unfinished.get(call).onFinished = resolve; });
  const whenSettled = async (promise, end) => {
    try { return await promise; } finally { end(); }
  };
  const quietlySettle = async (promise) => { try { await promise; } catch { /* the app's own matter */ } };
  // A function that returns a promise. `callOf` returns the call that an operation belongs to, if any; it is given to
  // `onSettled` before the page sees the outcome.
  const hookPromise = (owner, name, callOf, onSettled = nothing) => hook(owner, name, (native, self, args) => {
    const promise = apply(native, self, args), call = quietly(() => callOf(args)), end = quietly(() => beginOperation(call));
    if (!end) return promise;
    // The app gets the promise that waits: of the other one, which is handled here, the page would miss a rejection. A
    // promise that a function of the page made may have more members.
    const settled = whenSettled(promise, () => {
      onSettled(call);
      end();
    });
    if (quietly(() => getPrototypeOf(promise) === Promise.prototype && !ownKeys(promise).length)) return settled;
    quietlySettle(settled);
    return promise;
  });
  // A function, or a setter (`key`), whose outcome is one of these events.
  const hookEvents = (owner, name, types, callOf, key) => hook(owner, name, (native, self, args) => {
    const end = quietly(() => beginOperation(callOf(args, self)));
    if (!end) return apply(native, self, args);
    const onEnd = () => {
      listForEach(types, (type) => quietly(() => targetRemoveEventListener(self, type, onEnd)));
      end();
    };
    listForEach(types, (type) => quietly(() => targetAddEventListener(self, type, onEnd)));
    try { return apply(native, self, args); } catch (error) { onEnd(); throw error; }
  }, key);
  // Of the requests, those count that the handler itself makes, or any after a click: pages make others all the time.
  const requestCall = () => startingCall() ?? (currentCall() === clicker ? clicker : null);
  const memberOf = (object, name) => getOwnPropertyDescriptor(object ?? {}, name)?.value;
  hookPromise(window, "fetch", (args) => (memberOf(args[1], "keepalive") ? null : requestCall()));
  hookEvents(ofPage.XMLHttpRequest?.prototype, "send", ["loadend"], requestCall);
  // axios reads a cookie before each request.
  hookPromise(ofPage.CookieStore?.prototype, "get", requestCall, ownMicrotasks);
  listForEach(["arrayBuffer", "blob", "text"], (name) => {
    hookPromise(ofPage.Response?.prototype, name, currentCall);
    hookPromise(ofPage.Blob?.prototype, name, currentCall);
  });
  listForEach(["readAsArrayBuffer", "readAsBinaryString", "readAsDataURL", "readAsText"], (name) => {
    hookEvents(ofPage.FileReader?.prototype, name, ["loadend"], currentCall);
  });
  // A picture of the page becomes a file by way of an image that is drawn.
  const isLocal = (url) => textStartsWith(url, "blob:") || textStartsWith(url, "data:");
  // Lazy images and those of other documents, such as a template's, may never load.
  const isLoaded = (image) => nodeOwnerDocument(image) === document && imageLoading(image) !== "lazy";
  const imageCall = (args, image) => (typeof args[0] === "string" && isLocal(args[0]) && isLoaded(image) ? currentCall() : null);
  hookEvents(ofPage.HTMLImageElement?.prototype, "src", ["load", "error"], imageCall, "set");
  hook(ofPage.HTMLCanvasElement?.prototype, "toBlob", (native, self, args) => {
    const callback = args[0], call = currentCall(), end = typeof callback === "function" ? beginOperation(call) : undefined;
    if (!end) return apply(native, self, args);
    const reportBlob = (blob) => {
      try { within(call, () => apply(callback, undefined, [blob])); } finally { end(); }
    };
    try { return apply(native, self, [reportBlob, args[1], args[2]]); } catch (error) { end(); throw error; }
  });

  // --- clicks made by scripts: downloads are announced, file choosers answered ---------------------------------------
  // Chromium silently drops downloads beyond ten a second in one document. Further ones begin later, with the content that
  // they had at the click.
  const AT_A_TIME = 9, PERIOD = 1100, MAX_QUEUED = 100; // ms, downloads
  let startTimes = [], queued = []; // times of the latest downloads; functions that begin the next ones
  const isFull = () => {
    startTimes = filterList(startTimes, (time) => clock() - time < PERIOD);
    return startTimes.length >= AT_A_TIME;
  };
  const beginQueued = () => {
    while (queued.length && !isFull()) {
      const begin = queued[0];
      queued = filterList(queued, (_, index) => index > 0);
      listPush(startTimes, clock());
      quietly(begin);
    }
    if (queued.length) setTimeout(beginQueued, startTimes[0] + PERIOD - clock());
  };
  const beginLater = (begin) => {
    listPush(queued, begin);
    if (queued.length === 1) setTimeout(beginQueued, startTimes[0] + PERIOD - clock());
  };
  // The link is not in the document, so the DOM does not change.
  const clickLink = (url, name) => {
    const link = createHtmlElement("a");
    elementSetAttribute(link, "href", url);
    elementSetAttribute(link, "download", name);
    htmlClick(link);
  };
  const clickLater = (link) => {
    const href = elementGetAttribute(link, "href"), name = elementGetAttribute(link, "download");
    const blob = isForeign(createObjectURL) ? undefined : blobsByUrl.get(href);
    beginLater(() => {
      const url = blob ? createObjectURL(blob) : href;
      clickLink(url, name);
      if (blob) revokeObjectURL(url);
    });
  };
  const downloadLink = (target) => quietly(() => {
    const link = elementClosest(target, "a[download], area[download]");
    return link && elementHasAttribute(link, "href") ? link : undefined;
  });
  // Browsers open links to other origins, whatever their attribute says: the answer may be a file, a page or nothing.
  const isSure = (link) => quietly(() => anchorProtocol(link) === "data:" || anchorOrigin(link) === origin) ?? false;
  const urlOf = (link) => {
    const url = quietly(() => anchorHref(link)) ?? "";
    return url.length <= 2000 ? url : ""; // a data: URL may hold the file
  };
  // This listener runs first: one of the app may keep the click from the link.
  let hearClick = null;
  targetAddEventListener(window, "click", (event) => hearClick?.(event), true);
  // Returns what `act` returns: the download that this click makes, if any, begins now or later.
  const clicking = (target, act) => {
    const link = downloadLink(target), call = currentCall(), click = () => within(call, act);
    clicker = call;
    expectSoon(call, 0);
    if (!link) return click();
    urlMaker = null;
    if (!queued.length && !isFull()) {
      let clicked;
      const remember = (event) => { clicked ??= event; }, outer = hearClick;
      quietly(() => emit("download", { call, url: urlOf(link), sure: isSure(link) }));
      hearClick = remember;
      targetAddEventListener(link, "click", remember, true);
      try { return click(); } finally {
        hearClick = outer;
        targetRemoveEventListener(link, "click", remember, true);
        if (clicked && eventDefaultPrevented(clicked)) quietly(() => emit("download", { call, prevented: true }));
        else listPush(startTimes, clock());
      }
    }
    let postponed = false, href = null;
    const postpone = (event) => { // the last listener of the link
      if (eventDefaultPrevented(event)) return;
      eventPreventDefault(event);
      if (!eventDefaultPrevented(event)) { // new MouseEvent("click") cannot be prevented
        href = elementGetAttribute(link, "href");
        elementRemoveAttribute(link, "href");
      }
      postponed = true;
    };
    targetAddEventListener(link, "click", postpone);
    let clickResult;
    try { clickResult = click(); } finally {
      targetRemoveEventListener(link, "click", postpone);
      if (href !== null) elementSetAttribute(link, "href", href);
    }
    if (!postponed) return clickResult;
    quietly(() => {
      if (queued.length >= MAX_QUEUED) {
        emit("download", { call, dropped: true });
      } else {
        emit("download", { call, url: urlOf(link), sure: isSure(link), wait: (queued.length / AT_A_TIME + 1) * PERIOD });
        clickLater(link);
      }
    });
    return clickResult === undefined ? clickResult : true;
  };
  const cancelFileChooser = (target, active) => quietly(() => {
    const input = elementLocalName(target) === "label" ? labelControl(target) : target;
    if (active || !input || elementLocalName(input) !== "input" || inputType(input) !== "file" || inputDisabled(input)) return;
    // Without a user gesture the browser neither opens a chooser nor fires an event, so `cancel` is fired here.
    emit("filechooser", { call: currentCall(), multiple: inputMultiple(input), directory: inputWebkitdirectory(input) });
    setTimeout(() => targetDispatchEvent(input, new Event("cancel", { __proto__: null, bubbles: true })));
  });
  const isActive = () => quietly(() => activationIsActive(navigatorUserActivation(ofPage.navigator)));
  hook(ofPage.HTMLElement?.prototype, "click", (native, self, args) => {
    const active = isActive();
    const result = clicking(self, () => apply(native, self, args));
    cancelFileChooser(self, active);
    return result;
  });
  hook(ofPage.EventTarget?.prototype, "dispatchEvent", (native, self, args) => {
    if (quietly(() => eventType(args[0])) !== "click") return apply(native, self, args);
    const active = isActive();
    const clickResult = clicking(self, () => apply(native, self, args));
    if (clickResult) cancelFileChooser(self, active);
    return clickResult;
  });
  listForEach(["showOpenFilePicker", "showSaveFilePicker", "showDirectoryPicker"], (name) => hook(window, name, () => {
    quietly(() => emit("filechooser", { call: currentCall(), picker: name }));
    const advice = name === "showSaveFilePicker" ? "; return the file, or offer it as a download" : "; take the file as a parameter";
    const reason = new DOMException(`The file picker was cancelled: there is no user to choose${advice}.`, "AbortError");
    return new Promise((_, reject) => reject(reason));
  }));

  // --- the screen: Chromium asks for what to share even if that is denied, and without a window forever --------------
  hook(ofPage.MediaDevices?.prototype, "getDisplayMedia", async (native, self, args) => {
    const name = { __proto__: null, name: "display-capture" };
    let state;
    try {
      state = permissionStatusState(await permissionsQuery(navigatorPermissions(ofPage.navigator), name));
    } catch { /* a browser that knows no such permission */ }
    if (state === "denied") throw new DOMException("Permission denied", "NotAllowedError");
    return await apply(native, self, args);
  });

  // --- the clipboard, and what is shared: content becomes an output; nothing reaches the system ---------------------
  const record = async (kind, blob, name = "") => {
    const call = currentCall(), content = await hold(blob);
    emit(kind, { call, type: blobType(blob), size: blobSize(blob), name, ...content });
  };
  const textBlob = (text) => new Blob(sequence([text]), { __proto__: null, type: "text/plain" });
  const clipboard = ofPage.Clipboard?.prototype;
  hook(clipboard, "writeText", (native, self, args) => {
    if (!args.length) return apply(native, self, args); // throws as it should
    return (async () => await record("clipboard", textBlob(String(args[0]))))();
  });
  hook(clipboard, "write", async (native, self, args) => {
    const items = isArray(args[0]) ? args[0] : from(args[0]);
    for (let index = 0; index < items.length; index += 1) {
      const item = items[index], types = clipboardItemTypes(item);
      for (let nth = 0; nth < types.length; nth += 1) await record("clipboard", await clipboardItemGetType(item, types[nth]));
    }
  });
  const share = async (data) => {
    const { title, text, url, files = [] } = data ?? {};
    const words = filterList([title, text, url], (part) => part !== undefined && part !== null);
    if (words.length) await record("share", textBlob(listJoin(mapList(words, String), "\n")));
    else if (!files.length) throw new TypeError("nothing to share");
    for (let index = 0; index < files.length; index += 1) await record("share", files[index], textToWellFormed(fileName(files[index])));
  };
  const navigatorPrototype = ofPage.Navigator?.prototype;
  // Whether a browser has share() depends on its system. An app does the same everywhere.
  if (!later && ofPage.isSecureContext && quietly(() => hasOwn(navigatorPrototype, "share")) === false) {
    const property = { __proto__: null, value: { share() { } }.share, configurable: true, enumerable: true, writable: true };
    if (quietly(() => defineProperty(navigatorPrototype, "share", property))) {
      listPush(undo, () => { delete navigatorPrototype.share; });
    }
  }
  hook(navigatorPrototype, "share", (native, self, args) => share(args[0]));

  // --- notifications: no user is there to see them -------------------------------------------------------------------
  const notified = (title, options) => quietly(() => {
    const body = options?.body;
    emit("notice", { call: currentCall(), title: textToWellFormed(String(title)), body: textToWellFormed(String(body ?? "")) });
  });
  hook(window, "Notification", (native, self, args, target) => {
    if (target === undefined) return apply(native, self, args); // throws as it should
    notified(args[0], args[1]);
    return construct(native, args, target);
  });
  hook(ofPage.Notification, "requestPermission", (native, self, args) => {
    notified("", undefined);
    return apply(native, self, args);
  });
  hook(ofPage.ServiceWorkerRegistration?.prototype, "showNotification", (native, self, args) => {
    notified(args[0], args[1]);
    return apply(native, self, args);
  });

  // --- object URLs: a window may show one that the app revokes at once ----------------------------------------------
  const REVOKED_LIFETIME = 5000; // ms for which a revoked URL can still be resolved
  const blobsByUrl = new Map(), liveUrls = new Set();
  install(ofPage.URL, "createObjectURL", (native, self, args) => {
    const url = apply(native, self, args);
    if (quietly(() => blobSize(args[0])) !== undefined) blobsByUrl.set(url, args[0]);
    liveUrls.add(url);
    urlMaker = currentCall();
    expectSoon(urlMaker, 0);
    return url;
  });
  install(ofPage.URL, "revokeObjectURL", (native, self, args) => {
    const url = quietly(() => String(args[0]));
    if (liveUrls.delete(url)) setTimeout(() => blobsByUrl.delete(url), REVOKED_LIFETIME);
    return apply(native, self, args);
  });

  return {
    // Makes the next PDF show snapshot `id`, or the page itself if it has not changed since.
    async showSnapshot(id) {
      const snapshot = snapshots.get(id) ?? {};
      snapshots.delete(id);
      const images = snapshot.clone ? elementsIn(snapshot.clone, "img") : [];
      const decoded = mapList(images, async (image) => { try { await imageDecode(image); } catch { /* a broken image */ } });
      const allDecoded = async () => { for (let index = 0; index < decoded.length; index += 1) await decoded[index]; };
      if (decoded.length) await firstOf(allDecoded(), wait(DECODE_TIMEOUT));
      activeSnapshot = snapshot;
    },
    restorePage,
    watch() {
      const steps = waiting ?? [];
      waiting = null;
      listForEach(steps, quietly);
    },
    unhook() {
      hooked = false;
      listForEach(undo, quietly);
    },
    expectEmbeds,
    // Returns whether a call that began at `start` left something for a later turn.
    leavesMore: (call, start) => expectedAt >= start || unfinished.has(call),
    // Resolves once the operations of a call have ended, and two turns after the latest short timer, or at `latest` (time of
    // the clock). Times are rounded up: cut off, they would be too early.
    async turns(call, latest) {
      let timeUp, isTimeUp = false;
      do {
        if (unfinished.has(call)) {
          timeUp ??= wait(max(0, min(UNFINISHED_TIMEOUT, latest - clock())));
          await firstOf(finished(call), (async () => { await timeUp; isTimeUp = true; })());
        }
        for (let turn = 0; turn < 2; turn += 1) await wait(ceil(max(0, min(due, latest) - clock())));
      } while (unfinished.has(call) && !isTimeUp);
      if (unfinished.delete(call)) emit("unfinished", { call });
    },
    // Clicks a download link; `name` identifies the file in the browser's events.
    async clickDownload(url, name) {
      if (queued.length || isFull()) await new Promise(beginLater);
      else listPush(startTimes, clock());
      clickLink(url, name);
    },
    findBlob: (url) => blobsByUrl.get(url),
    // Returns a JSON list of at most one blob.
    blobOfUrl(url) {
      const blob = blobsByUrl.get(url);
      return toJson(blob ? [{ ...hold(blob), type: blobType(blob), size: blobSize(blob) }] : []);
    },
  };
}
