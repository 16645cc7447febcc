// Shows the changes of a served page: what is new or different is replaced where it stands, and all else is left alone, with
// its folds, filters, focus and scroll position. Without this script a link reloads the page.
const live = document.querySelector(".live");
const partsOf = page => new Map([...page.querySelectorAll("body > header, main > section")].map(part => [part.getAttribute("aria-labelledby"), part]));

const replaceRows = (table, fresh) => {
  const nameOf = row => row.querySelector("th").textContent;
  const rows = new Map([...table.tBodies[0].rows].map(row => [nameOf(row), row]));
  const kept = row => rows.get(nameOf(row))?.innerHTML === row.innerHTML ? rows.get(nameOf(row)) : row;
  table.tBodies[0].replaceChildren(...[...fresh.tBodies[0].rows].map(kept));
  table.dispatchEvent(new Event("change"));
};

const replaceChanges = (old, fresh) => {
  if (fresh.localName === "details") fresh.open = old.open;
  if (old.isEqualNode(fresh)) return;
  const isSameElement = old.localName && old.cloneNode().isEqualNode(fresh.cloneNode()) && old.localName !== "svg";
  if (!isSameElement) return old.replaceWith(fresh);
  const [olds, news] = [[...old.childNodes], [...fresh.childNodes]];
  olds.slice(news.length).forEach(child => child.remove());
  news.forEach((child, index) => olds[index] ? replaceChanges(olds[index], child) : old.append(child));
};

const show = page => {
  const focused = document.activeElement;
  const [olds, news] = [partsOf(document), partsOf(page)];
  for (const [name, part] of olds) if (!news.has(name)) part.remove();
  let before = null;
  for (const [name, part] of news) {
    const old = olds.get(name);
    const table = old?.querySelector("table.filtered");
    if (table) replaceRows(table, part.querySelector("table.filtered"));
    else if (old) replaceChanges(old, part);
    else before.after(part);
    before = document.contains(part) ? part : old;
  }
  if (document.contains(focused)) focused.focus({ preventScroll: true });
};

const tell = words => {
  const status = live.querySelector("[role=status]");
  if (status.textContent !== words) status.textContent = words;
};

let etag = "";
const update = async () => {
  try {
    const answer = document.hidden ? null : await fetch(location.pathname, { headers: { "If-None-Match": etag }, cache: "no-store" });
    if (answer?.status === 200) {
      show(new DOMParser().parseFromString(await answer.text(), "text/html"));
      etag = answer.headers.get("ETag");
    }
    tell("This page shows changes as they happen.");
  } catch {
    tell("The server does not answer; this page may be out of date.");
  }
  setTimeout(update, live.dataset.updateS * 1000);
};
update();
