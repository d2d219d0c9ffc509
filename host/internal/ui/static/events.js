// The journal of a task, page by page: a window of it is in the page, however
// long it is, and while the window is at the end new events come in.

import { get, seg } from "./api.js";
import { button, fill, h } from "./dom.js";
import * as f from "./format.js";

// WINDOW is how many events are in the page, PAGE how many one step goes.
const WINDOW = 200;
export const PAGE = 100;
// FAR is how many pages are searched for the other end of a link.
const FAR = 50;

const short = (id) => (id && id.length > 12 ? id.slice(0, 4) + "…" + id.slice(-4) : id || "");

// say puts an event into words: [what happened, more].
// tool is the tool of the call that it ends, where that is known.
export function tell(ev, tool = "") {
  const p = ev.payload || {};
  const by = p.actor ? " by " + p.actor : "";
  switch (ev.kind) {
    case "task_opened": return ["opened", p.objective ? p.objective.split("\n")[0] : ""];
    case "assigned": return [p.again ? "waits for its start again" : "accepted", ""];
    case "starting": return ["a cell is being made", ""];
    case "started": return ["started", p.agent_runtime || ""];
    case "progress": return ["progress", [p.phase, p.summary, p.tokens_total && f.count(p.tokens_total) + " tokens", p.cost_micro_usd_total && f.usd(p.cost_micro_usd_total / 1e6)].filter(Boolean).join(" · ")];
    case "question": return [p.source === "approval" ? "a human is asked for approval" : "a human is asked", p.prompt || ""];
    case "answered": return ["question " + (p.outcome || "closed") + by, ""];
    case "proposed": return ["proposed " + (p.tool_name || ""), p.tool_args ? JSON.stringify(p.tool_args) : ""];
    case "decision": return [(f.VERDICTS[p.decision?.status]?.[0] || p.decision?.status || "decided") + ": " + (p.tool_name || ""), p.decision?.reason || ""];
    case "approval": return [`approval${by}: ${p.action}`, p.explanation || ""];
    case "executed": return ["dispatched " + (p.tool_name || ""), ""];
    case "completed": return ["completed" + (tool && " " + tool), p.duration_ms !== undefined ? p.duration_ms + " ms" : ""];
    case "failed": return [(p.outcome === "outcome_unknown" ? "outcome unknown" : p.outcome === "definitely_not_started" ? "not started" : "failed") + (tool && " " + tool), p.error || ""];
    case "cancel_requested": return ["asked to cancel a running call", ""];
    case "paused": return ["paused" + by, p.reason || ""];
    case "resumed": return ["resumed" + by, ""];
    case "replan_requested": return ["asked to replan" + by, p.reason || ""];
    case "intent_changed": return [(p.intent ? "intent changed" : "plan changed") + by, p.intent?.goal || ""];
    case "stop": return ["STOP" + by, p.reason || p.stop?.reason || ""];
    case "stop_acknowledged": return ["stop is through", p.receipt ? "access: " + p.receipt.access_revocation : ""];
    case "granted": return [p.kind ? "access recorded" : "access granted", p.issuer || ""];
    case "revocation_started": return ["issuers are asked to take access back", (p.issuers || []).join(", ")];
    case "revocation_result": return ["issuer " + (p.issuer || "") + ": " + (p.result || ""), p.detail || ""];
    case "rules_changed": return ["other rules are in force", ""];
    case "suspended": return ["suspended", p.reason || ""];
    case "reconnected": return ["the host is back", ""];
    case "restarted": return ["restarted" + by, ""];
    case "resolved": return ["outcome settled" + by + ": " + (p.outcome || ""), p.explanation || ""];
    case "ended": return ["ended: " + (p.state || ""), [p.reason, p.error].filter(Boolean).join(" — ")];
    case "gap": return ["the record has a gap", p.reason || ""];
    case "repaired": return ["the journal was repaired", ""];
    default: return [ev.kind, ""];
  }
}

const LOOK = { stop: "bad", stop_acknowledged: "bad", failed: "bad", ended: "calm", approval: "ask", question: "ask", executed: "go", completed: "ok", gap: "bad", repaired: "bad" };
function look(ev) {
  if (ev.kind === "decision") return f.VERDICTS[ev.payload?.decision?.status]?.[1] || "calm";
  return LOOK[ev.kind] || "calm";
}

// links are the ids that tie an event to others: [label, id].
function links(ev) {
  const p = ev.payload || {};
  const out = [["proposal", p.proposal_id], ["decision", p.decision_id], ["call", p.invocation_id]];
  if (p.decision?.causal_link) out.push(["caused by decision", p.decision.causal_link]);
  if (p.parent_decision_id) out.push(["parent decision", p.parent_decision_id]);
  if (p.resolved_decision_id) out.push(["led to decision", p.resolved_decision_id]);
  if (p.stop_id) out.push(["stop", p.stop_id]);
  if (p.hitl_id && p.hitl_id !== p.decision_id) out.push(["question", p.hitl_id]);
  return out.filter(([, id]) => id);
}

const names = (ev, id) => links(ev).some(([, other]) => other === id) || ev.payload?.id === id || ev.event_id === id;

export class Events {
  // task is the task's id; signal ends what runs.
  constructor(task, signal) {
    Object.assign(this, { task, signal, events: [], rows: new Map(), tools: new Map(), live: true, chosen: "" });
    this.rowsEl = h("ol", { class: "events", "aria-label": "Events, newest first" });
    this.note = h("span", { class: "muted", role: "status" });
    this.olderB = button("Older", "", () => this.older());
    this.newerB = button("Newer", "", () => this.newer());
    this.latestB = button("Latest", "", () => this.latest());
    this.chip = h("button", { type: "button", class: "chip", hidden: true, on: { click: () => this.choose("") } });
    this.el = h("div", { data: { errors: "" } }, h("div", { class: "actions" }, this.latestB, this.newerB, this.olderB, this.chip, this.note), this.rowsEl);
    this.draw();
  }

  get first() { return this.events[0]?.sequence || 0; }
  get last() { return this.events.at(-1)?.sequence || 0; }

  // page reads up to n events behind a sequence.
  async page(after, n = PAGE) {
    const got = await get(`/tasks/${seg(this.task)}/events?after=${after}&limit=${n}`, { signal: this.signal });
    return got.events;
  }

  // push takes an event from the live stream.
  push(ev) {
    this.head = Math.max(this.head || 0, ev.sequence);
    if (!this.live || ev.sequence <= this.last) return;
    if (this.events.length && ev.sequence !== this.last + 1) this.events = [];
    this.events.push(ev);
    if (this.events.length > WINDOW) this.events.splice(0, this.events.length - WINDOW);
    this.frame ||= requestAnimationFrame(() => { this.frame = 0; this.draw(); });
  }

  async older() {
    if (this.first <= 1) return;
    const from = Math.max(0, this.first - 1 - PAGE);
    const got = (await this.page(from, this.first - 1 - from)).filter((ev) => ev.sequence < this.first);
    this.events = [...got, ...this.events];
    if (this.events.length > WINDOW) {
      this.events.length = WINDOW;
      this.live = false;
    }
    this.draw();
  }

  async newer() {
    const got = (await this.page(this.last)).filter((ev) => ev.sequence > this.last);
    this.events = [...this.events, ...got].slice(-WINDOW);
    this.live = got.length < PAGE;
    this.draw();
  }

  async latest() {
    const got = await this.page(Math.max(0, (this.head || 0) - PAGE));
    this.events = got.slice(-WINDOW);
    this.live = true;
    this.draw();
  }

  // choose marks every event that names an id, and goes back to the first one.
  async choose(id) {
    this.chosen = id;
    this.chip.hidden = !id;
    this.chip.textContent = `showing what belongs to ${short(id)} ×`;
    if (id && this.events.filter((ev) => names(ev, id)).length < 2) {
      for (let i = 0; i < FAR && this.first > 1; i++) {
        await this.older();
        if (names(this.events[0], id) || this.events.slice(0, PAGE).some((ev) => names(ev, id))) break;
      }
    }
    this.draw();
    if (id) this.rowsEl.querySelector(".related")?.scrollIntoView({ block: "nearest" });
  }

  draw() {
    const shown = new Set();
    let before = null;
    for (const ev of this.events) if (!this.rows.has(ev.sequence)) this.rows.set(ev.sequence, this.row(ev)); // the oldest first: an end knows its call
    for (let i = this.events.length - 1; i >= 0; i--) {
      const ev = this.events[i];
      shown.add(ev.sequence);
      const row = this.rows.get(ev.sequence);
      row.classList.toggle("related", this.chosen !== "" && names(ev, this.chosen));
      const next = before ? before.nextSibling : this.rowsEl.firstChild;
      if (next !== row) this.rowsEl.insertBefore(row, next);
      before = row;
    }
    for (const [seq, row] of this.rows) if (!shown.has(seq)) { row.remove(); this.rows.delete(seq); }
    this.rowsEl.classList.toggle("choosing", this.chosen !== "");
    this.olderB.hidden = this.first <= 1;
    this.newerB.hidden = this.latestB.hidden = this.live;
    this.note.textContent = this.events.length ? `${f.count(this.first)}–${f.count(this.last)} of ${f.count(Math.max(this.head || 0, this.last))}${this.live ? ", live" : ""}` : "Loading…";
  }

  row(ev) {
    const p = ev.payload || {};
    if (ev.kind === "executed") {
      if (this.tools.size > 5000) this.tools.clear();
      this.tools.set(p.invocation_id, p.tool_name);
    }
    const [what, more] = tell(ev, this.tools.get(p.invocation_id));
    const chips = links(ev).map(([label, id]) => h("button", { type: "button", class: "chip", title: id, on: { click: () => this.choose(id) } }, label + " " + short(id)));
    const body = h("div", { class: "more" });
    const details = h("details", {}, h("summary", {},
      h("span", { class: "seq mono muted", text: ev.sequence }), f.when(ev.timestamp),
      h("span", { class: "kind " + look(ev) }, h("span", { class: "dot", "aria-hidden": "true" }), what), h("span", { class: "muted rest", text: more })), body);
    details.addEventListener("toggle", () => {
      if (details.open && !body.firstChild) fill(body, chips.length > 0 && h("div", { class: "chips" }, chips), h("pre", { class: "args", tabindex: "0", text: f.pretty(ev.payload) }),
        h("p", { class: "mono muted digest", text: `${ev.kind} · digest ${ev.digest}` }));
    });
    return h("li", { data: { kind: ev.kind, seq: ev.sequence } }, details);
  }
}
