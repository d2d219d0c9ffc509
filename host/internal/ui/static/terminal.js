// A session's terminal. The host draws it; what comes here are rows of text with
// colours, and what goes into the page is text in spans.

import { seg, stream } from "./api.js";
import { fill, h } from "./dom.js";

// HISTORY is how many lines that scrolled off are kept in the page.
const HISTORY = 1000;
const BOLD = 1, ITALIC = 2, UNDERLINE = 4, STRIKE = 8;

function run(r) {
  const el = document.createElement("span");
  el.textContent = r.t;
  if (r.f) el.style.color = r.f;
  if (r.b) el.style.backgroundColor = r.b;
  if (r.s) {
    let cls = "";
    if (r.s & BOLD) cls += " b";
    if (r.s & ITALIC) cls += " i";
    if (r.s & UNDERLINE) cls += " u";
    if (r.s & STRIKE) cls += " x";
    el.className = cls.trim();
  }
  return el;
}

function paint(row, runs, cursor) {
  row.replaceChildren(...runs.map(run));
  if (cursor >= 0) mark(row, runs, cursor);
}

// mark shows where the cursor is: the character at that column, or a blank.
function mark(row, runs, x) {
  const text = runs.map((r) => r.t).join("");
  const all = [...text];
  const c = document.createElement("span");
  c.className = "cursor";
  c.textContent = all[x] || " ";
  if (x >= all.length) {
    row.append(" ".repeat(x - all.length), c);
    return;
  }
  let seen = 0;
  for (const span of [...row.childNodes]) {
    const chars = [...span.textContent];
    if (x < seen + chars.length) {
      const rest = span.cloneNode();
      rest.textContent = chars.slice(x - seen + 1).join("");
      span.textContent = chars.slice(0, x - seen).join("");
      span.after(c, rest);
      return;
    }
    seen += chars.length;
  }
}

// terminal follows a session until the signal aborts.
export function terminal(sessionId, signal) {
  const history = h("div", { class: "history" });
  const screen = h("div", { class: "screen" });
  const term = h("div", { class: "term mono", tabindex: "0", role: "log", "aria-live": "off", "aria-label": "Terminal of the session" }, history, screen);
  const note = h("p", { class: "muted termnote", role: "status", text: "Connecting…" });
  let rows = []; // {el, runs}
  let cursorAt = -1;
  let done = false;
  const inner = new AbortController();
  signal.addEventListener("abort", () => inner.abort());

  function take(frame) {
    const bottom = term.scrollTop + term.clientHeight >= term.scrollHeight - 4;
    if (frame.full) {
      rows = Array.from({ length: frame.rows }, () => ({ el: document.createElement("div"), runs: [] }));
      fill(screen, rows.map((r) => r.el));
      cursorAt = -1;
      if (frame.fresh) history.replaceChildren();
    }
    for (const runs of frame.gone || []) {
      const el = document.createElement("div");
      paint(el, runs, -1);
      history.append(el);
    }
    while (history.childElementCount > HISTORY) history.firstChild.remove();
    const c = frame.cursor;
    const dirty = new Set(frame.lines.map((l) => l.y));
    for (const l of frame.lines) if (rows[l.y]) rows[l.y].runs = l.r;
    if (cursorAt >= 0) dirty.add(cursorAt);
    cursorAt = c.hidden || frame.finished ? -1 : c.y;
    if (cursorAt >= 0) dirty.add(cursorAt);
    for (const y of dirty) if (rows[y]) paint(rows[y].el, rows[y].runs, y === cursorAt ? c.x : -1);
    // Blank rows below the last line are not shown once the session is over.
    if (frame.finished) while (rows.length && rows.at(-1).runs.length === 0) rows.pop().el.remove();
    note.textContent = (frame.finished ? "The session has ended." : "Live.") + (frame.skipped ? " Earlier output: airlock mission logs." : "");
    done = frame.finished;
    if (bottom) term.scrollTop = term.scrollHeight;
  }

  let fresh = true;
  stream(`/api/v1/sessions/${seg(sessionId)}/screen`, {
    open: () => { fresh = true; },
    event: (name, data) => {
      if (name !== "screen") return;
      const frame = JSON.parse(data);
      frame.fresh = fresh && frame.full;
      fresh = false;
      take(frame);
      if (done) return "end";
    },
    error: (err) => { note.textContent = err.message; },
  }, inner.signal);
  return h("div", {}, term, note);
}
