// The app's first script, a classic one in the head: notes what a client had put on the page before any of the app ran.

(() => {
  const isNative = (name) => Function.prototype.toString.call(window[name]).includes('[native code]');
  const clientFunctions = ['__abp_notification', '__abp_progress', '__abp_elicitation', '__abp_capabilities_changed'];
  window.workbenchFirst = {
    functions: Object.fromEntries(clientFunctions.map((name) => [name, typeof window[name] === 'function'])),
    names: Object.getOwnPropertyNames(window).filter((name) => name.startsWith('__')),
    replaced: ['print', 'alert', 'confirm', 'prompt', 'open'].filter((name) => !isNative(name)),
  };
  // An app may keep a function before anybody else can replace it. Not enumerable: it is no part of the record.
  Object.defineProperty(window.workbenchFirst, 'print', { value: window.print.bind(window) });
})();
