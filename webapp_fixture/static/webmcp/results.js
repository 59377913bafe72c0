// The page that the search leads to.

'use strict';
document.modelContext?.registerTool({
  name: 'query',
  description: 'What was searched',
  execute: () => Object.fromEntries(new URLSearchParams(location.search)),
});
