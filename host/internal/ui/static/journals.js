// Verifying journals: the host checks every digest and link of a task's chain, and
// the signed head outside of its data directory, and says where it breaks.

import { get, seg } from "./api.js";
import { button, fill, h } from "./dom.js";
import * as f from "./format.js";

const FAULTS = {
  gap: "events are missing before this one", changed: "what the event says is not what was recorded", truncated: "the end is missing", untrusted: "it is not the journal that was signed",
  torn: "the record breaks off", malformed: "a record is no event", genesis: "it begins as another journal", duplicate: "an event is there twice", unverifiable: "it could not be checked",
};

export function verdict(v) {
  if (v.valid) {
    return h("p", { data: { verdict: "valid" } }, f.pill("intact", "ok"), ` ${f.count(v.good.sequence)} events, every digest and link. `,
      v.trusted ? `Held against the signed head at event ${f.count(v.trusted.sequence)}.` : "There is no signed head to hold it against: a cut-off end would not be seen.");
  }
  return h("div", { data: { verdict: "broken" }, role: "alert" },
    h("p", {}, f.pill("BROKEN", "bad"), " ", v.fault.sequence ? h("strong", { text: `At event ${f.count(v.fault.sequence)}: ` }) : "", FAULTS[v.fault.kind] || v.fault.kind, "."),
    h("p", { class: "mono", text: v.fault.detail }),
    h("p", { text: `Good up to event ${f.count(v.good.sequence)}. Nothing behind it can be relied on. Export it before you touch anything (airlock journal export), then see airlock journal repair --help.` }));
}

// verify is a button that has one task's journal checked.
export function verify(id, { signal }) {
  const out = h("div", { "aria-live": "polite" });
  return h("div", { class: "verify", data: { errors: "" } }, button("Verify the journal", "", async () => {
    fill(out, h("p", { class: "muted", text: "Checking every event…" }));
    try {
      fill(out, verdict(await get(`/tasks/${seg(id)}/verify`, { signal })));
    } catch (err) {
      fill(out);
      throw err;
    }
  }), out);
}

// journals verifies many: those of live missions, or the newest ones.
export async function journals(main, ctx) {
  const { signal } = ctx;
  const list = h("ul", { class: "things" });
  const sum = h("p", { role: "status", class: "muted" });
  const run = (label, query) => button(label, "primary", async () => {
    fill(list);
    let checked = 0;
    let broken = 0;
    let cursor = "";
    do {
      const page = await get("/api/v1/missions?" + query + "&limit=100" + (cursor ? "&cursor=" + encodeURIComponent(cursor) : ""), { signal });
      for (const m of page.missions) {
        let v;
        try {
          v = await get(`/tasks/${seg(m.mission_id)}/verify`, { signal });
        } catch (err) {
          if (signal.aborted) return;
          v = { valid: false, good: { sequence: 0 }, fault: { kind: "unverifiable", sequence: 0, detail: err.message } };
        }
        checked++;
        if (!v.valid) broken++;
        const item = h("li", {}, h("a", { href: "#/missions/" + encodeURIComponent(m.mission_id) }, f.titleOf(m)), " ", h("span", { class: "mono muted", text: m.mission_id }), verdict(v));
        if (v.valid) list.append(item); else list.prepend(item);
        while (list.childElementCount > 500) list.lastChild.remove();
        sum.textContent = `${f.count(checked)} checked, ${broken ? f.count(broken) + " BROKEN" : "all intact"}`;
      }
      cursor = page.next;
    } while (cursor);
    if (!checked) sum.textContent = "There is no such journal.";
  });
  fill(main, h("h1", { text: "Journals" }),
    h("p", { text: "Everything that happens to a mission is an event in its journal, chained by digests and signed outside of the data directory. The host checks a journal whole: a changed, missing or added event shows, with its place." }),
    h("div", { class: "actions", data: { errors: "" } }, run("Verify live missions", "live=true"), run("Verify all", "state=assigned,running,hitl-required,paused,suspended,done,failed,aborted")),
    sum, list);
}
