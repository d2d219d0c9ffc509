// What waits for a human, across all missions, the longest waiting first.

import { get, seg, stream } from "./api.js";
import { approvalCard, countdown, questionCard } from "./decide.js";
import { drop, fill, h, later } from "./dom.js";

// SHOWN is how many cards are in the page at a time; the next come as these go.
const SHOWN = 50;

export async function inbox(main, ctx) {
  const { signal } = ctx;
  const box = h("div", { class: "inbox", "aria-live": "polite" });
  const note = h("p", { class: "empty", role: "status", text: "Loading…" });
  fill(main, h("h1", { text: "Inbox" }), note, box);
  countdown(main, signal);
  const cards = new Map();
  let again = false;
  let busy = false;

  async function refresh() {
    if (busy) { again = true; return; }
    busy = true;
    try {
      do {
        again = false;
        await once();
      } while (again && !signal.aborted);
    } finally {
      busy = false;
    }
  }

  async function once() {
    const { questions } = await get("/api/v1/hitl", { signal });
    const wanted = new Set(questions.map((q) => q.hitl_id));
    for (const [id, el] of cards) if (!wanted.has(id)) { drop(el); cards.delete(id); }
    const missing = questions.filter((q) => !cards.has(q.hitl_id)).slice(0, Math.max(0, SHOWN - cards.size));
    const tasks = new Map();
    for (const q of missing) {
      if (signal.aborted) return;
      const link = h("a", { href: "#/missions/" + encodeURIComponent(q.mission_id) }, "mission ", h("span", { class: "mono", text: q.mission_id }));
      let card;
      if (q.source === "approval") {
        if (!tasks.has(q.mission_id)) tasks.set(q.mission_id, await get(`/tasks/${seg(q.mission_id)}/status`, { signal }).catch(() => null));
        const status = tasks.get(q.mission_id);
        const approval = status?.pending_approvals.find((a) => a.decision_id === q.hitl_id);
        if (!approval) continue;
        card = approvalCard({ task: q.mission_id, approval, intent: status.intent, ctx, after: soon, link });
      } else {
        card = questionCard({ question: q, ctx, after: soon, link });
      }
      cards.set(q.hitl_id, card);
      box.append(card);
    }
    note.hidden = questions.length > 0 && questions.length <= SHOWN;
    note.textContent = questions.length ? `${questions.length} wait; the ${cards.size} that wait longest are here.` : "Nothing waits for a human.";
    ctx.host.refresh();
  }
  const soon = later(120, () => refresh().catch(() => {}));
  stream("/api/v1/missions", { open: soon, event: soon, error: (err) => { note.hidden = false; note.textContent = err.message; } }, signal);
  await refresh();
}
