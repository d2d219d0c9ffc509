// Talking to the host. Every request carries the operator's token in its header;
// the token is in this tab's session storage and nowhere else.

const KEY = "airlock.token";

// bus tells of "online" (detail: true or false), "signedout" (detail: why).
export const bus = new EventTarget();
const tell = (name, detail) => bus.dispatchEvent(new CustomEvent(name, { detail }));

export class ApiError extends Error {
  constructor(status, body) {
    super(body.error || body.title || "the host answered " + status);
    Object.assign(this, { status, code: body.code || "", field: body.field || "" });
  }
}

// Away is that no answer came at all.
export class Away extends Error {
  constructor() { super("The host does not answer."); }
}

let token = sessionStorage.getItem(KEY) || "";
export const signedIn = () => token !== "";

export function signIn(value) {
  token = value.trim();
  sessionStorage.setItem(KEY, token);
}

export function signOut(why) {
  token = "";
  sessionStorage.removeItem(KEY);
  tell("signedout", why || "");
}

let online = true;
export let lastAnswer = Date.now();
function setOnline(now) {
  if (now) lastAnswer = Date.now();
  if (now === online) return;
  online = now;
  tell("online", now);
}

// seg makes one path segment of an id.
export const seg = (id) => encodeURIComponent(id);

// reachable says whether a browser can name an id in a URL at all.
export const reachable = (id) => id !== "." && id !== "..";

async function ask(method, path, { body, signal, accept } = {}) {
  const headers = { Accept: accept || "application/json" };
  if (token) headers.Authorization = "Bearer " + token;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let resp;
  try {
    resp = await fetch(path, {
      method, headers, signal, cache: "no-store", credentials: "omit", redirect: "error",
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (err) {
    if (signal?.aborted) throw err;
    setOnline(false);
    throw new Away();
  }
  setOnline(true);
  if (resp.ok) return resp;
  const text = await resp.text().catch(() => "");
  let problem = {};
  try { problem = JSON.parse(text); } catch { /* no problem document: the status says it */ }
  if (resp.status === 401 && token) signOut("The host does not take this token (any more).");
  throw new ApiError(resp.status, problem);
}

// call gives the answer's JSON, null where there is none.
export async function call(method, path, body, options) {
  const resp = await ask(method, path, { body, ...options });
  if (resp.status === 204) return null;
  try {
    return await resp.json();
  } catch (err) {
    if (options?.signal?.aborted) throw err;
    throw new Away();
  }
}

export const get = (path, options) => call("GET", path, undefined, options);
export const post = (path, body, options) => call("POST", path, body, options);
export const put = (path, body, options) => call("PUT", path, body, options);

const sleep = (ms, signal) => new Promise((resolve) => {
  const t = setTimeout(resolve, ms);
  signal.addEventListener("abort", () => { clearTimeout(t); resolve(); }, { once: true });
});

// MOST is the longest event that is taken; what is longer ends the stream.
const MOST = 8 << 20;

// stream keeps server-sent events coming until the signal aborts: it reconnects,
// and lets go while the tab is hidden, since a browser opens six connections to
// a host at most. path may be an async function. on.open is called at each connection,
// on.event(name, data) for each event; "end" as its answer ends the stream.
export async function stream(path, on, signal) {
  let pause = 250;
  while (!signal.aborted) {
    if (document.hidden) {
      await new Promise((resolve) => {
        document.addEventListener("visibilitychange", resolve, { once: true });
        signal.addEventListener("abort", resolve, { once: true });
      });
      continue;
    }
    const inner = new AbortController();
    const stop = () => { if (signal.aborted || document.hidden) inner.abort(); };
    signal.addEventListener("abort", stop);
    document.addEventListener("visibilitychange", stop);
    try {
      const at = typeof path === "function" ? await path() : path;
      const resp = await ask("GET", at, { accept: "text/event-stream", signal: inner.signal });
      pause = 250;
      let first = true;
      for await (const ev of events(resp.body)) {
        if (first) { first = false; await on.open?.(); }
        if (ev.name && on.event(ev.name, ev.data) === "end") return;
      }
      setOnline(true);
    } catch (err) {
      if (!signal.aborted && !document.hidden) {
        if (err instanceof ApiError && err.status < 500) { on.error?.(err); return; }
        if (!(err instanceof ApiError)) setOnline(false);
        else on.error?.(err);
      }
    } finally {
      inner.abort();
      signal.removeEventListener("abort", stop);
      document.removeEventListener("visibilitychange", stop);
    }
    if (!signal.aborted && !document.hidden) await sleep(pause, signal);
    pause = Math.min(pause * 2, 5000);
  }
}

// events takes a body apart. A comment gives an event without a name.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += value;
    let end;
    while ((end = rest.indexOf("\n\n")) >= 0) {
      const ev = { name: "", data: "" };
      for (const line of rest.slice(0, end).split("\n")) {
        if (line.startsWith("event: ")) ev.name = line.slice(7);
        else if (line.startsWith("data: ")) ev.data += line.slice(6);
      }
      rest = rest.slice(end + 2);
      yield ev;
    }
    if (rest.length > MOST) throw new Error("an event is too long");
  }
}
