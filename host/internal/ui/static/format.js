// How things are said: states, times, money, and what the host's words mean to
// somebody who reads them for the first time.

import { h } from "./dom.js";

// STATES: label and look of each state of a mission.
const STATES = {
  assigned: ["assigned", "calm"], running: ["running", "go"], "hitl-required": ["needs a human", "ask"],
  paused: ["paused", "hold"], suspended: ["suspended", "hold"], done: ["done", "ok"], failed: ["failed", "bad"], aborted: ["stopped", "bad"],
};

export const ended = (m) => m.state === "done" || m.state === "failed" || m.state === "aborted";

// stateOf is a mission's state for people: a task without a cell that was stopped
// is "paused" on the wire, and waits for its restart.
export function stateOf(m) {
  if (!ended(m) && (m.waiting_for === "restart" || m.waiting_for === "stop")) return [m.waiting_for === "stop" ? "stopping" : "stopped", "bad"];
  if (m.state === "hitl-required" && m.runtime === "harness") return STATES["hitl-required"];
  return STATES[m.state] || [m.state, "calm"];
}

export function pill(label, look) {
  return h("span", { class: "pill " + look }, h("span", { class: "dot", "aria-hidden": "true" }), label);
}

export const statePill = (m) => pill(...stateOf(m));

// why says in a sentence what a mission waits for; empty when it does not wait.
// asked is the question that it waits with, where that is known.
export function why(m, asked) {
  const reason = m.state_reason ? ": " + m.state_reason : "";
  if (m.state === "failed") return "failed" + reason + (m.exit_code ? ` (exit code ${m.exit_code})` : "") + (m.error ? ` — ${m.error}` : "");
  if (m.state === "aborted") return "stopped" + reason;
  if (m.state === "suspended") return "suspended until the host is back" + reason;
  switch (m.waiting_for) {
    case "restart": return "stopped" + (m.state_reason ? ` (${m.state_reason})` : "") + "; waits for a restart";
    case "stop": return "is being stopped" + reason;
    case "operator": return (m.state === "paused" ? "paused; waits for resume" : "needs an operator") + reason;
    case "answer": return asked ? "asks: " + asked : "waits for a human's answer";
    case "slot": return "waits for a free slot of its agent";
    case "cell": return "its cell is being made";
    case "": return m.state === "done" ? "" : m.progress?.summary || "";
    default: return "waits for " + m.waiting_for + reason;
  }
}

export function age(from, to) {
  if (!from) return "–";
  const s = Math.max(0, Math.round(((to ? new Date(to) : new Date()) - new Date(from)) / 1000));
  if (s < 60) return s + " s";
  if (s < 3600) return Math.floor(s / 60) + " min";
  if (s < 86400) return Math.floor(s / 3600) + " h " + (Math.floor(s / 60) % 60) + " min";
  return Math.floor(s / 86400) + " d " + (Math.floor(s / 3600) % 24) + " h";
}

export const clock = (t) => new Date(t).toLocaleTimeString([], { hour12: false });

// when is a time element: the clock, and the whole date on hover.
export const when = (t) => h("time", { datetime: t, title: new Date(t).toString() }, clock(t));

export function usd(v) {
  if (!v) return "$0";
  return "$" + (v < 0.01 ? v.toFixed(4) : v.toFixed(2));
}

export const count = (n) => Number(n).toLocaleString("en-US");

// short is the last part of an instance's reference: isolation.docker.container
// is "docker".
export const driverOf = (ref) => (ref || "").split(".")[1] || ref || "none";

// LEVELS say what a driver's isolation keeps apart.
const LEVELS = { "isolation:vm": "virtual machine", "isolation:container": "container", "isolation:host": "confined process" };

// levelOf finds a driver's isolation level in what its plugin says of itself.
export function levelOf(ref, plugins) {
  const p = (plugins || []).find((q) => q.ref === ref || q.ref === "isolation." + ref);
  for (const c of p?.capabilities || []) if (LEVELS[c]) return LEVELS[c];
  return "";
}

// titleOf is the first line of an objective.
export function titleOf(m, most = 240) {
  const line = (m.objective || "").split("\n").find((l) => l.trim() !== "") || m.mission_id;
  return line.length > most ? line.slice(0, most) + "…" : line;
}

// promptOf is a question in a few words; an approval's names its verbs for those
// who answer by text, which nobody does here.
export const promptOf = (q) => (q.source === "approval" ? q.prompt.replace(/ Answer with approve_once, .*$/, "") : q.prompt);

// VERDICTS: what a decision of the gate means.
export const VERDICTS = {
  ALLOW: ["allowed", "ok"], WARN: ["allowed with a warning", "ask"], CHALLENGE: ["challenged: the agent must think again", "hold"],
  REPLAN: ["not run: the agent must find another way", "hold"], PAUSE: ["waits for a human", "ask"],
  ESCALATE: ["waits for a human (escalated)", "ask"], BLOCK: ["blocked", "bad"],
};

export const pretty = (v) => (v === null || v === undefined ? "" : typeof v === "string" ? v : JSON.stringify(v, null, 2));
