// Answers its own page: only an extension has somebody to ask here.
chrome.runtime.onMessage.addListener((message, sender, respond) => {
  respond({ echoed: message, from: sender.url });
});
