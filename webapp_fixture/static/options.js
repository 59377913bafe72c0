// The page's options, from its address: ?late=500&faults and so on. (?isolated is the server's: see pages.py.)

const query = new URLSearchParams(location.search);
const flag = (name) => query.has(name);
const number = (name) => Math.max(0, Number.parseInt(query.get(name) ?? '0', 10) || 0);

export const options = Object.freeze({
  late: number('late'), // window.abp appears after so many milliseconds
  absent: flag('absent'), // it never does
  half: flag('half'), // it has no `call`
  throws: flag('throws'), // reading it throws
  initfails: flag('initfails'), // initialize rejects
  wrappedlist: flag('wrappedlist'), // listCapabilities answers {success, data}
  emptylist: flag('emptylist'), // listCapabilities answers []
  faults: query.get('faults'), // '': the fault.* capabilities are listed too; else only those named, as 'alert,deep'
  given: JSON.parse(query.get('given') ?? '{}'), // parameters that the named faults get in every call, as JSON
  breaks: new Set((query.get('breaks') ?? '').split(',').filter(Boolean)), // rules of the protocol: see breaks.js
  capabilities: number('capabilities'), // so many more capabilities, bulk.000000 and on
  ownevents: query.get('ownevents') ?? '', // 'assign' or 'call': abp.onProgress and so on instead of __abp_progress
  canceltype: query.get('canceltype') ?? '', // 'string' or 'object': cancel takes only that form
});
