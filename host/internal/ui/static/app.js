// The frame of the Control Room: signing in, the way from an address to a view,
// shortcuts, and what is said when the host is away.

import * as api from "./api.js";
import { dialog, fill, h, later } from "./dom.js";
import { promptOf } from "./format.js";
import { hostView } from "./host.js";
import { inbox } from "./inbox.js";
import { journals } from "./journals.js";
import { mission } from "./mission.js";
import { missions } from "./missions.js";

const $ = (id) => document.getElementById(id);
const main = $("main");
const VIEWS = { missions, inbox, host: hostView, journals };
const TITLES = { missions: "Missions", inbox: "Inbox", host: "Host", journals: "Journals" };

// host is what views share: who is signed in, what plugins say of themselves.
const host = { me: null, plugins: [], asked: new Map(), changed: new EventTarget(), mayWrite: () => host.me?.role === "operator", keys: (map) => { viewKeys = map; }, refresh: () => soonWaiting() };
let viewKeys = {};
let view = null; // AbortController of the view that is shown

function route() {
  if (location.hash === "#main") { main.focus(); return; }
  view?.abort();
  view = null;
  viewKeys = {};
  if (!api.signedIn() || !host.me) return;
  const [, name = "missions", id] = location.hash.split("/");
  const show = VIEWS[name] ? name : "missions";
  for (const a of document.querySelectorAll("[data-nav]")) {
    if (a.dataset.nav === show) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  view = new AbortController();
  const ctx = { signal: view.signal, host };
  scrollTo(0, 0);
  fill(main);
  main.focus({ preventScroll: true }); // what had the focus is gone
  document.title = TITLES[show] + " – Airlock";
  let key = "";
  try { key = decodeURIComponent(id || ""); } catch { /* an address that somebody mistyped */ }
  const work = show === "missions" && key ? mission(main, key, ctx) : VIEWS[show](main, ctx);
  Promise.resolve(work).catch((err) => { if (!ctx.signal.aborted) failed(err); });
}

function failed(err) {
  fill(main, h("div", { class: "empty", role: "alert" }, h("p", { text: err.message }), h("button", { type: "button", on: { click: route } }, "Try again")));
}

// begin finds out who the token is, and shows the address.
async function begin() {
  try {
    host.me = await api.get("/api/v1/whoami");
  } catch (err) {
    if (!api.signedIn()) return; // signed out meanwhile
    if (err instanceof api.Away) { setTimeout(begin, 1000); return; }
    api.signOut(err.message);
    return;
  }
  $("top").hidden = false;
  fill($("whoami"), host.me.operator, host.me.role === "viewer" ? " (may only read)" : "");
  loadPlugins();
  soonWaiting();
  route();
}

async function loadPlugins() {
  try {
    host.plugins = (await api.get("/api/v1/plugins")).plugins || [];
    host.changed.dispatchEvent(new Event("plugins"));
  } catch { /* the level of isolation is then not shown; the host view says why */ }
}

// what waits for a human, in the navigation and in the tab's title.
async function waiting() {
  if (!api.signedIn() || document.hidden) return;
  try {
    const { questions } = await api.get("/api/v1/hitl");
    const n = questions.length;
    const asked = new Map(questions.reverse().map((q) => [q.mission_id, promptOf(q)]));
    if (JSON.stringify([...asked]) !== JSON.stringify([...host.asked])) { host.asked = asked; host.changed.dispatchEvent(new Event("asked")); }
    const el = $("waiting");
    el.hidden = n === 0;
    el.textContent = n;
    el.setAttribute("aria-label", n + " waiting");
    document.title = document.title.replace(/^\(\d+\) /, "");
    if (n) document.title = `(${n}) ` + document.title;
  } catch { /* the banner says that the host is away */ }
}
const soonWaiting = later(300, waiting);
setInterval(() => { if (host.me) soonWaiting(); }, 3000);

function signInView(why) {
  view?.abort();
  view = null;
  host.me = null;
  $("top").hidden = true;
  document.title = "Sign in – Airlock";
  const field = h("input", { type: "password", id: "token", autocomplete: "off", spellcheck: "false", required: true, "aria-describedby": "tokenhelp" });
  const form = h("form", { class: "panel signin" },
    h("h1", { text: "Airlock Control Room" }),
    why && h("p", { class: "error", role: "alert", text: why }),
    h("label", { for: "token" }, "Operator's token"), field,
    h("button", { type: "submit", class: "primary" }, "Sign in"),
    h("p", { class: "muted", id: "tokenhelp" }, "It is kept in this tab only. Or run ", h("code", { text: "airlock ui" }), " on the host and open the link that it prints."));
  form.addEventListener("submit", (ev) => {
    ev.preventDefault();
    if (!field.value.trim()) return;
    api.signIn(field.value);
    fill(main, h("p", { class: "empty", role: "status", text: "Signing in…" }));
    begin();
  });
  fill(main, form);
  field.focus();
}

// A link of `airlock ui` has a code behind the #: it is taken out of the address
// at once, and exchanged for a session.
async function fromCode(code) {
  history.replaceState(null, "", "/#/missions");
  fill(main, h("p", { class: "empty", role: "status", text: "Signing in…" }));
  try {
    const got = await api.post("/api/v1/ui/session", { code });
    api.signIn(got.token);
    begin();
  } catch (err) {
    signInView(err instanceof api.ApiError && err.status === 401 ? "This link was used already, or is older than a minute. Run airlock ui again." : err.message);
  }
}

function banner() {
  const el = $("banner");
  let timer = 0;
  const text = () => fill(el, h("strong", { text: "The host does not answer." }), " What you see is from ",
    new Date(api.lastAnswer).toLocaleTimeString([], { hour12: false }), "; nothing that you do here reaches it. Trying again…");
  api.bus.addEventListener("online", (ev) => {
    clearInterval(timer);
    document.body.classList.toggle("offline", !ev.detail);
    el.hidden = ev.detail;
    if (ev.detail) { loadPlugins(); soonWaiting(); return; }
    text();
    timer = setInterval(() => { api.get("/livez").catch(() => {}); }, 1500);
  });
}

const SHORTCUTS = [["g then m", "missions"], ["g then i", "inbox"], ["g then h", "host"], ["g then j", "journals"],
  ["j / k, ↓ / ↑", "next, previous mission in the list"], ["Enter", "open the mission"], ["/", "filter the list"],
  ["s", "stop the mission that is shown (asks first)"], ["u", "back to the list"], ["?", "this help"], ["Esc", "close a dialog"]];

function help() {
  return dialog("Keyboard shortcuts", (done) => [
    h("dl", { class: "keys" }, SHORTCUTS.map(([k, what]) => [h("dt", {}, h("kbd", { text: k })), h("dd", { text: what })])),
    h("p", {}, h("button", { type: "button", class: "primary", on: { click: () => done() } }, "Close"))]);
}

// A key that was a shortcut types nothing, wherever the focus has gone by then,
// until it is let go.
let used = "";
document.addEventListener("keypress", (ev) => { if (ev.key === used) ev.preventDefault(); }, true);
document.addEventListener("keyup", () => { used = ""; }, true);

let chord = 0;
document.addEventListener("keydown", (ev) => {
  if (ev.repeat && ev.key === used) { ev.preventDefault(); return; }
  used = "";
  if (ev.ctrlKey || ev.metaKey || ev.altKey || !host.me || document.querySelector("dialog[open]")) return;
  if (ev.target.closest("input, textarea, select, [contenteditable]")) {
    if (ev.key === "Escape") ev.target.blur();
    return;
  }
  if (ev.target.closest(".term") && ev.key.startsWith("Arrow")) return;
  if (chord && Date.now() - chord < 1200) {
    chord = 0;
    const to = { m: "missions", i: "inbox", h: "host", j: "journals" }[ev.key];
    if (to) { used = ev.key; location.hash = "#/" + to; ev.preventDefault(); return; }
  }
  if (ev.key === "g") { chord = Date.now(); return; }
  if (ev.key === "?") { used = ev.key; help(); ev.preventDefault(); return; }
  const f = viewKeys[ev.key];
  if (f) { if (ev.key.length === 1 && !"jk".includes(ev.key)) used = ev.key; ev.preventDefault(); f(); }
});

api.bus.addEventListener("signedout", (ev) => signInView(ev.detail));
addEventListener("hashchange", () => {
  const code = /^#code=([0-9a-f]+)$/.exec(location.hash);
  if (code) fromCode(code[1]);
  else route();
});
$("skip").addEventListener("click", (ev) => { ev.preventDefault(); main.focus(); });
$("help").addEventListener("click", help);
$("signout").addEventListener("click", async () => {
  if (host.me?.session) await api.call("DELETE", "/api/v1/ui/session").catch(() => {});
  api.signOut("");
});
banner();
const code = /^#code=([0-9a-f]+)$/.exec(location.hash);
if (code) fromCode(code[1]);
else if (api.signedIn()) { fill(main, h("p", { class: "empty", role: "status", text: "Loading…" })); begin(); }
else signInView("");
