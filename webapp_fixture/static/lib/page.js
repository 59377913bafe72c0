// What the server wrote into the page: its token, the other origin, the definitions. (No request: the strict page has none.)

const { token, otherOrigin } = document.documentElement.dataset;
export const definitions = JSON.parse(document.getElementById('definitions').textContent);
export { otherOrigin };

const AUTH = {
  none: {},
  bearer: { server: 'bearer', auth: { type: 'bearer', header: `Bearer ${token}` } },
  bearerLine: { server: 'key', auth: { type: 'bearer', header: `X-API-Key: ${token}` } },
  bearerToken: { server: 'bearer', auth: { type: 'bearer', token } },
  query: { server: 'query', auth: { type: 'query', token } },
  cookie: { server: 'cookie' },
};

/** {downloadUrl, auth?} for a path of this server; the server is told which credential to ask for. */
export function downloadAddress(path, { auth = 'none', absolute = false, ...query }) {
  const kind = AUTH[auth];
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries({ auth: kind.server, ...query })) {
    if (value !== undefined) search.set(name, value);
  }
  const relative = `/${path}${search.size ? `?${search}` : ''}`;
  const downloadUrl = absolute ? new URL(relative, location.origin).href : relative;
  return kind.auth ? { downloadUrl, auth: { ...kind.auth } } : { downloadUrl };
}
