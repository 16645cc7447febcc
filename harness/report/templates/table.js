// Adds filters and sorting to each table that asks for them. Without this script the table is complete, newest first.
// Both stay in the address; an event "change" of the table tells that it has other rows.
for (const table of document.querySelectorAll("table.filtered")) {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  const asked = new URLSearchParams(location.search);
  const form = document.createElement("form");
  const count = document.createElement("output");
  const valuesOf = cell => cell.dataset.values ? cell.dataset.values.split(" ") : [cell.textContent.trim()];
  const compare = new Intl.Collator("en", { numeric: true }).compare;

  const selects = heads.filter(head => head.classList.contains("filter")).map(head => {
    const label = document.createElement("label");
    const select = document.createElement("select");
    const name = head.textContent.trim();
    select.ariaLabel = name;
    label.append(name, " ", select);
    form.append(label);
    return { name, select, column: head.cellIndex };
  });

  const offer = ({ name, select, column }) => {
    const values = [...new Set([...body.rows].flatMap(row => valuesOf(row.cells[column])))].sort(compare);
    if (values.join("\n") === [...select.options].slice(1).map(option => option.value).join("\n")) return;
    const chosen = select.options.length ? select.value : asked.get(name);
    select.replaceChildren(new Option("all", ""), ...values.map(value => new Option(value, value)));
    select.value = values.includes(chosen) ? chosen : "";
  };

  const filter = () => {
    const rows = [...body.rows];
    for (const row of rows) {
      row.hidden = !selects.every(({ select, column }) => !select.value || valuesOf(row.cells[column]).includes(select.value));
    }
    count.textContent = rows.filter(row => !row.hidden).length + " of " + rows.length;
    const chosen = selects.filter(({ select }) => select.value).map(({ name, select }) => [name, select.value]);
    const sorted = heads.find(head => head.ariaSort);
    if (sorted) chosen.push(["sort", sorted.textContent.trim()], ["order", sorted.ariaSort]);
    history.replaceState(null, "", location.pathname + (chosen.length ? "?" + new URLSearchParams(chosen) : "") + location.hash);
  };

  const sort = (head, order) => {
    const key = row => row.cells[head.cellIndex].textContent.trim();
    for (const other of heads) other.ariaSort = null;
    head.ariaSort = order;
    body.append(...[...body.rows].sort((a, b) => compare(key(a), key(b)) * (order === "descending" ? -1 : 1)));
  };

  const show = () => {
    selects.forEach(offer);
    const sorted = heads.find(head => head.ariaSort);
    if (sorted) sort(sorted, sorted.ariaSort);
    filter();
  };

  for (const head of heads.filter(one => one.textContent.trim())) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => {
      sort(head, head.ariaSort === "ascending" ? "descending" : "ascending");
      filter();
    });
    head.append(button);
    if (head.textContent.trim() === asked.get("sort")) sort(head, asked.get("order") === "descending" ? "descending" : "ascending");
  }

  form.className = "filters";
  form.setAttribute("aria-label", "Filter");
  form.append(count);
  form.addEventListener("input", filter);
  form.addEventListener("submit", event => event.preventDefault());
  table.addEventListener("change", show);
  table.parentElement.before(form);
  show();
}
