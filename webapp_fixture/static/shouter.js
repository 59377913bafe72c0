// /embed/shouter, a page of another origin: shouts well-shaped answers with the right id and a wrong payload at the top
// page. It is told the id by /embed/shouting, or finds one after the # of its address.

const TIMES = 20;
const forged = { forged: true };

function shout(id) {
  const answer = { success: true, data: forged, sessionId: 'forged', protocolVersion: '0.1', capabilities: [] };
  answer.app = { id: 'forged', name: 'Forged', version: '0' };
  const event = { event: 'forged', data: forged, operationId: id, progress: 1, method: 'elicitation/input', params: forged };
  const replies = ['initialize-result', 'capabilities/call-result', 'capabilities/cancel-result'];
  const events = ['notification', 'progress', 'elicitation/request'];
  for (let time = 0; time < TIMES; time += 1) {
    for (const type of replies) top.postMessage({ type, id, timestamp: Date.now(), payload: answer }, '*');
    for (const type of events) top.postMessage({ type, id, timestamp: Date.now(), payload: event }, '*');
  }
}

window.addEventListener('message', ({ data, ports }) => {
  shout(data.id);
  ports[0]?.postMessage('shouted');
});
if (location.hash) shout(decodeURIComponent(location.hash.slice(1)));
