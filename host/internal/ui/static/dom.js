// Building the page out of elements and text. Nothing here takes markup: text is
// only ever set as text.

// h makes an element. Of props, "class", "text", "on" (event handlers) and "data"
// are special; a value of false or null leaves an attribute out.
export function h(tag, props, ...kids) {
  const el = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (value === false || value === null || value === undefined) continue;
    if (name === "class") el.className = value;
    else if (name === "text") el.textContent = value;
    else if (name === "on") for (const [ev, f] of Object.entries(value)) el.addEventListener(ev, f);
    else if (name === "data") Object.assign(el.dataset, value);
    else if (name === "value") el.value = value;
    else el.setAttribute(name, value === true ? "" : value);
  }
  add(el, kids);
  return el;
}

function add(el, kids) {
  for (const kid of kids) {
    if (kid === null || kid === undefined || kid === false) continue;
    if (Array.isArray(kid)) add(el, kid);
    else el.append(kid instanceof Node ? kid : document.createTextNode(String(kid)));
  }
}

// fill puts other children into an element.
export function fill(el, ...kids) {
  const fragment = document.createDocumentFragment();
  add(fragment, kids);
  el.replaceChildren(fragment);
  return el;
}

// memo makes a place that is only made anew when what it is made of has changed,
// so that a field that somebody types into stays.
export function memo(el, make) {
  let last;
  return (input) => {
    const key = JSON.stringify(input);
    if (key === last) return;
    last = key;
    fill(el, make(input));
  };
}

// section is a titled part of a page.
let ids = 0;
export function section(title, cls, ...kids) {
  const id = "s" + ++ids;
  return h("section", { class: "panel " + (cls || ""), "aria-labelledby": id }, h("h2", { id, text: title }), ...kids);
}

// button is a button that cannot be pressed twice while its work runs; what goes
// wrong is said beside it.
export function button(label, cls, work, props) {
  const b = h("button", { type: "button", class: cls, ...props }, label);
  b.addEventListener("click", async () => {
    if (b.getAttribute("aria-disabled") === "true") return;
    b.setAttribute("aria-disabled", "true");
    try {
      await work();
    } catch (err) {
      say(b, err);
    } finally {
      b.removeAttribute("aria-disabled");
    }
  });
  return b;
}

// drop takes an element out of the page; a focus in it goes to the element that
// comes next, else to the content, and not to nowhere.
export function drop(el) {
  const had = el.contains(document.activeElement);
  const next = el.nextElementSibling || el.previousElementSibling;
  el.remove();
  if (!had) return;
  if (next) next.setAttribute("tabindex", "-1");
  (next || document.getElementById("main")).focus({ preventScroll: !next });
}

// say puts an error beside what caused it.
export function say(near, err) {
  const box = near.closest("[data-errors]") || near.parentElement;
  box.querySelector(":scope > .error")?.remove();
  if (err) box.append(h("p", { class: "error", role: "alert", text: err.message || String(err) }));
}

// dialog shows a modal dialog; it resolves with what done was called with, or
// with undefined when it was closed.
export function dialog(title, make) {
  return new Promise((resolve) => {
    let result;
    const head = "s" + ++ids;
    const d = h("dialog", { "aria-labelledby": head });
    const done = (value) => { result = value; d.close(); };
    fill(d, h("h2", { id: head, text: title }), make(done));
    d.addEventListener("close", () => { d.remove(); resolve(result); });
    d.addEventListener("click", (ev) => { if (ev.target === d) d.close(); });
    document.body.append(d);
    d.showModal();
  });
}

// later calls f soon, and not more often than every ms.
export function later(ms, f) {
  let timer = 0;
  let last = 0;
  return () => {
    if (timer) return;
    const wait = Math.max(0, last + ms - Date.now());
    timer = setTimeout(() => { timer = 0; last = Date.now(); f(); }, wait);
  };
}

// list shows rows out of many: only those that are in sight are in the page.
export class VirtualList {
  constructor(el, key, make, update) {
    Object.assign(this, { el, key, make, update, items: [], rows: new Map() });
    el.classList.add("virtual");
    this.paint = this.paint.bind(this);
    this.soon = () => { this.frame ||= requestAnimationFrame(() => { this.frame = 0; this.paint(); }); };
    addEventListener("scroll", this.soon, { passive: true });
    addEventListener("resize", this.soon);
  }

  close() {
    removeEventListener("scroll", this.soon);
    removeEventListener("resize", this.soon);
    cancelAnimationFrame(this.frame);
  }

  set(items) {
    this.items = items;
    this.el.style.height = items.length * this.height() + "px"; // who scrolls to the end comes there
    this.soon();
  }

  height() { return parseFloat(getComputedStyle(this.el).getPropertyValue("--row")) || 64; }

  paint() {
    if (!this.el.isConnected) return;
    const height = this.height();
    this.el.style.height = this.items.length * height + "px";
    const top = this.el.getBoundingClientRect().top;
    const from = Math.max(0, Math.floor(-top / height) - 6);
    const to = Math.min(this.items.length, Math.ceil((innerHeight - top) / height) + 6);
    const wanted = new Set();
    const focused = document.activeElement;
    let before = null;
    for (let i = from; i < to; i++) {
      const item = this.items[i];
      const key = this.key(item);
      wanted.add(key);
      let row = this.rows.get(key);
      if (!row) {
        row = { el: this.make(item) };
        this.rows.set(key, row);
      }
      if (row.item !== item) {
        row.item = item;
        this.update(row.el, item);
      }
      if (row.at !== i || row.height !== height) {
        row.at = i;
        row.height = height;
        row.el.style.transform = `translateY(${i * height}px)`;
        row.el.setAttribute("aria-posinset", i + 1);
      }
      if (row.size !== this.items.length) {
        row.size = this.items.length;
        row.el.setAttribute("aria-setsize", row.size);
      }
      // Rows are in the order in which they are seen, for the Tab key; moving the
      // one that has the focus would take it away.
      const next = before ? before.nextSibling : this.el.firstChild;
      if (next !== row.el && row.el !== focused) this.el.insertBefore(row.el, next);
      before = row.el;
    }
    for (const [key, row] of this.rows) {
      if (!wanted.has(key)) {
        row.el.remove();
        this.rows.delete(key);
      }
    }
  }

  // step moves the focus by n rows.
  step(n) {
    if (!this.items.length) return;
    let at = -1;
    for (const row of this.rows.values()) if (row.el === document.activeElement) at = row.at;
    if (at < 0 && this.last >= 0) at = this.last - Math.sign(n);
    at = Math.min(this.items.length - 1, Math.max(0, at < 0 ? 0 : at + n));
    this.last = at;
    const height = this.height();
    const y = this.el.getBoundingClientRect().top + at * height;
    const head = document.getElementById("top").offsetHeight + 8;
    if (y < head) scrollBy(0, y - head);
    else if (y + height > innerHeight) scrollBy(0, y + height - innerHeight + 8);
    this.paint();
    for (const row of this.rows.values()) if (row.at === at) row.el.focus({ preventScroll: true });
  }
}
