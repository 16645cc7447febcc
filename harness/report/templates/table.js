// Adds filters and sorting to each table that asks for them. Without this script the table is complete, newest first.
for (const table of document.querySelectorAll("table.filtered")) {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const asked = new URLSearchParams(location.search);
  const form = document.createElement("form");
  const count = document.createElement("output");
  const valuesOf = cell => cell.dataset.values ? cell.dataset.values.split(" ") : [cell.textContent.trim()];
  const compare = new Intl.Collator("en", { numeric: true }).compare;

  const selects = heads.filter(head => head.classList.contains("filter")).map(head => {
    const label = document.createElement("label");
    const select = document.createElement("select");
    const name = head.textContent.trim();
    const values = new Set(rows.flatMap(row => valuesOf(row.cells[head.cellIndex])));
    select.ariaLabel = name;
    select.add(new Option("all", ""));
    for (const value of [...values].sort(compare)) select.add(new Option(value, value));
    select.value = values.has(asked.get(name)) ? asked.get(name) : "";
    label.append(name, " ", select);
    form.append(label);
    return { name, select, column: head.cellIndex };
  });

  const filter = () => {
    for (const row of rows) {
      row.hidden = !selects.every(({ select, column }) => !select.value || valuesOf(row.cells[column]).includes(select.value));
    }
    count.textContent = rows.filter(row => !row.hidden).length + " of " + rows.length;
    const chosen = selects.filter(({ select }) => select.value).map(({ name, select }) => [name, select.value]);
    history.replaceState(null, "", location.pathname + (chosen.length ? "?" + new URLSearchParams(chosen) : "") + location.hash);
  };

  for (const head of heads.filter(one => one.textContent.trim())) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => {
      const isDescending = head.getAttribute("aria-sort") === "ascending";
      const key = row => row.cells[head.cellIndex].textContent.trim();
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", isDescending ? "descending" : "ascending");
      rows.sort((a, b) => compare(key(a), key(b)) * (isDescending ? -1 : 1));
      body.append(...rows);
    });
    head.append(button);
  }

  form.className = "filters";
  form.setAttribute("aria-label", "Filter");
  form.append(count);
  form.addEventListener("input", filter);
  form.addEventListener("submit", event => event.preventDefault());
  table.parentElement.before(form);
  filter();
}
