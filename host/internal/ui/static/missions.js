// The list of missions: live ones all, ended ones page by page.

import { ApiError, get, stream } from "./api.js";
import { fill, h, later, VirtualList } from "./dom.js";
import * as f from "./format.js";

// MOST is how many live missions are held; beyond it the list says so.
const MOST = 5000;
// ENDED is how many ended ones are held at most.
const ENDED = 5000;

const TABS = [["human", "Needs a human"], ["live", "Live"], ["ended", "Ended"]];

// remembered between visits to the list, within this tab.
const memory = { tab: "live", text: "" };

export async function missions(main, { signal, host }) {
  const live = new Map();
  const done = new Map();
  let cursor = null; // of the next page of ended missions; undefined: no more
  let loaded = false;
  let loading = false;
  let more = false; // there are more live ones than MOST

  const tabs = h("div", { class: "tabs", role: "group", "aria-label": "Which missions" });
  const field = h("input", { type: "search", id: "filter", placeholder: "Filter by id, objective, agent", "aria-label": "Filter missions", autocomplete: "off", spellcheck: "false", value: memory.text });
  const note = h("p", { class: "empty", role: "status" });
  const el = h("div", { class: "missions", role: "list", "aria-label": "Missions" });
  const list = new VirtualList(el, (m) => m.mission_id, row, (r, m) => update(r, m, host));
  const again = () => { for (const r of list.rows.values()) update(r.el, r.item, host); };
  host.changed.addEventListener("asked", again, { signal });
  host.changed.addEventListener("plugins", again, { signal });
  signal.addEventListener("abort", () => list.close());
  fill(main, h("div", { class: "listhead" }, h("h1", { text: "Missions" }), tabs, field), h("div", { class: "headrow muted", "aria-hidden": "true" },
    ...["State", "Mission", "Agent", "Age", "Cost"].map((t) => h("span", { text: t }))), el, note);

  field.addEventListener("input", () => { memory.text = field.value; show(); });
  field.addEventListener("keydown", (ev) => { if (ev.key === "ArrowDown") { ev.preventDefault(); list.step(1); } });
  const buttons = new Map(TABS.map(([name, label]) => {
    const n = h("span", { class: "n" });
    const b = h("button", { type: "button", on: { click: () => { memory.tab = name; scrollTo(0, 0); show(); } } }, label, " ", n);
    tabs.append(b);
    return [name, { b, n }];
  }));

  // needs says that a human has to do something before it goes on.
  const needs = (m) => m.state === "hitl-required" || m.waiting_for === "answer" || (m.waiting_for === "operator" && m.state !== "paused");

  function show() {
    const all = [...live.values()];
    const human = all.filter(needs);
    for (const [name, { b, n }] of buttons) {
      b.setAttribute("aria-pressed", String(name === memory.tab));
      n.textContent = !loaded ? "" : name === "human" ? human.length : name === "live" ? (more ? MOST + "+" : all.length) : "";
    }
    let items = memory.tab === "human" ? human : memory.tab === "live" ? all : [...done.values()];
    const text = memory.text.trim().toLowerCase();
    if (text) items = items.filter((m) => (m.mission_id + "\n" + m.objective + "\n" + m.agent + "\n" + m.state).toLowerCase().includes(text));
    const stamp = memory.tab === "ended" ? (m) => m.ended_at || m.created_at : (m) => m.created_at;
    items.sort((a, b) => (memory.tab === "live" ? needs(b) - needs(a) : 0) || (stamp(a) < stamp(b) ? 1 : stamp(a) > stamp(b) ? -1 : 0));
    list.set(items);
    places = new Map(items.map((m, i) => [m.mission_id, i]));
    if (memory.tab === "ended" && cursor === null && !loading) older();
    note.hidden = items.length > 0;
    if (!items.length) {
      note.textContent = !loaded || (memory.tab === "ended" && loading) ? "Loading…"
        : text ? "No mission matches the filter."
          : { human: "Nothing waits for a human.", live: "No mission is live. Missions come from the orchestrator, or with: airlock mission dispatch \"echo hello\"", ended: "No mission has ended yet." }[memory.tab];
    }
  }
  const soon = later(60, show);

  // quick shows a mission that has changed without a look at all the others, if
  // it keeps its place in the list.
  let places = new Map();
  function quick(old, m) {
    if (!old || f.ended(m) || needs(old) !== needs(m) || memory.text.trim()) return false;
    if (memory.tab === "ended" || (memory.tab === "human" && !needs(m))) return true;
    const at = places.get(m.mission_id);
    if (at === undefined || list.items[at] !== old) return false;
    list.items[at] = m;
    list.soon();
    return true;
  }

  function take(m) {
    if (f.ended(m)) {
      live.delete(m.mission_id);
      if (cursor !== null) done.set(m.mission_id, m);
    } else {
      done.delete(m.mission_id);
      live.set(m.mission_id, m);
    }
  }

  // reload reads every live mission anew; changed holds what changes meanwhile.
  let changed = null;
  let readings = 0;
  async function reload() {
    const mine = ++readings;
    const fresh = new Map();
    changed = new Map();
    let at = "";
    do {
      const page = await get("/api/v1/missions?live=true&limit=100" + (at ? "&cursor=" + encodeURIComponent(at) : ""), { signal });
      if (mine !== readings) return; // the stream has begun anew
      for (const m of page.missions) if (!f.ended(m)) fresh.set(m.mission_id, m);
      at = page.next;
      if (!loaded) { // what is there is shown at once
        for (const [id, m] of fresh) live.set(id, m);
        soon();
      }
    } while (at && fresh.size < MOST);
    more = Boolean(at);
    for (const [id, m] of changed) { if (f.ended(m)) fresh.delete(id); else fresh.set(id, m); }
    changed = null;
    live.clear();
    for (const [id, m] of fresh) live.set(id, m);
    loaded = true;
    cursor = null;
    done.clear();
    show();
  }
  // begin reads until it has worked; while the host is away the stream begins
  // again, and reads then.
  async function begin() {
    const mine = readings + 1;
    try {
      await reload();
    } catch (err) {
      if (signal.aborted || mine !== readings || !(err instanceof ApiError)) return;
      note.hidden = false;
      note.textContent = err.message + " Trying again…";
      setTimeout(() => { if (!signal.aborted && mine === readings) begin(); }, 2000);
    }
  }

  // older reads the next page of ended missions.
  async function older() {
    if (loading || cursor === undefined || done.size >= ENDED) return;
    loading = true;
    try {
      const page = await get("/api/v1/missions?state=done,failed,aborted&limit=100" + (cursor ? "&cursor=" + encodeURIComponent(cursor) : ""), { signal });
      for (const m of page.missions) done.set(m.mission_id, m);
      cursor = page.next || undefined;
    } finally {
      loading = false;
      if (memory.tab === "ended") show();
    }
  }
  const onScroll = () => {
    if (memory.tab === "ended" && scrollY + innerHeight > document.body.scrollHeight - 600) older().catch(() => {});
  };
  addEventListener("scroll", onScroll, { passive: true });
  const tick = setInterval(() => { for (const r of list.rows.values()) times(r.el, r.item); }, 1000);
  signal.addEventListener("abort", () => { removeEventListener("scroll", onScroll); clearInterval(tick); });

  host.keys({ j: () => list.step(1), k: () => list.step(-1), ArrowDown: () => list.step(1), ArrowUp: () => list.step(-1), "/": () => field.focus() });
  show();
  stream("/api/v1/missions", {
    open: () => { begin(); },
    event: (name, data) => {
      if (name !== "mission") return;
      const m = JSON.parse(data);
      changed?.set(m.mission_id, m);
      const old = live.get(m.mission_id);
      take(m);
      if (needs(m) !== host.asked.has(m.mission_id)) host.refresh();
      if (!quick(old, m)) soon();
    },
    error: (err) => { note.hidden = false; note.textContent = err.message; },
  }, signal);
}

function row(m) {
  const part = (cls) => h("span", { class: cls });
  const r = h("a", { class: "mission", href: "#/missions/" + encodeURIComponent(m.mission_id), role: "listitem" });
  r.append(part("state"), h("span", { class: "what" }, part("title"), part("sub muted")), h("span", { class: "agent" }, part("name"), part("sub muted")), part("age"), part("cost"));
  return r;
}

function set(el, text) {
  if (el.textContent !== text) el.textContent = text;
}

function update(r, m, { plugins, asked }) {
  const [state, what, agent] = r.children;
  const [label, look] = f.stateOf(m);
  if (state.dataset.is !== label) {
    state.dataset.is = label;
    fill(state, f.pill(label, look));
  }
  set(what.children[0], f.titleOf(m));
  const reason = f.why(m, asked.get(m.mission_id));
  set(what.children[1], (reason ? reason + " · " : "") + m.mission_id);
  const harness = m.runtime === "harness";
  const driver = f.driverOf(m.isolation);
  const level = f.levelOf(m.isolation, plugins);
  set(agent.children[0], harness ? "harness" : m.agent);
  set(agent.children[1], harness ? "runs outside of any cell" : driver + (level ? " · " + level : ""));
  set(r.children[4], m.cost_usd ? f.usd(m.cost_usd) : m.tokens ? f.count(m.tokens) + " tok" : "–");
  times(r, m);
}

function times(r, m) {
  set(r.children[3], m.ended_at ? f.age(m.started_at || m.created_at, m.ended_at) : f.age(m.created_at));
}
