// Search, sort and download over all answers of the page: no network, 50 rows in the document at a time.
(() => {
  if (!document.getElementById("data")) return;
  const { tables, ...data } = JSON.parse(document.getElementById("data").textContent);
  for (const name of ["query", "group", "answer", "error", "low", "high"]) data[name] = [];
  for (const { group, unit, steps, parts, first: begin = 0, query, ends, pairs, pair, ...known } of tables) {
    let whole = 0;
    const answer = known.answer ?? steps.split(" ").map((step) => (whole += parseInt(step, 36)) / unit);
    const names = query ?? (Number.isInteger(parts) ? tables[parts].parts : parts).reduce((before, part) => before.flatMap((first) => part.map((name) => [first, name].filter(Boolean).join(", "))), [""]);
    answer.forEach((value, i) => {
      const [error, half] = pairs ? pairs[pair[i] ?? 0] : [known.error[i]];
      const [low, high] = !pairs ? [known.low[i], known.high[i]] : half === null ? [null, null] : [Math.max(value - half, ends[0] ?? -Infinity), Math.min(value + half, ends[1] ?? Infinity)];
      for (const [name, item] of Object.entries({ query: names[begin + i], group, answer: value, error, low, high })) data[name].push(item);
    });
  }
  const rows = data.query.length, size = 50;
  const $ = (id) => document.getElementById(id);
  const words = data.query.map((text) => text.toLowerCase());
  let shown = [], page = 0, column = -1, up = true;
  const isKnown = (end) => Number.isFinite(end);
  const interval = (i) => {
    const [low, high] = [data.low[i], data.high[i]], [from, to] = [low, high].map((end) => isKnown(end) ? number(end, 1) : "");
    if (isKnown(low)) return isKnown(high) ? say("{low} to {high}", { low: from, high: to }) : say("at least {low}", { low: from });
    return isKnown(high) ? say("at most {high}", { high: to }) : say("not known");
  };
  const keys = [
    (i) => data.query[i], (i) => data.answer[i], (i) => isKnown(data.low[i]) && isKnown(data.high[i]) ? data.high[i] - data.low[i] : Infinity, (i) => data.error[i] ?? Infinity,
  ];
  function choose() {
    const find = $("find").value.trim().toLowerCase().split(/,?\s+/).filter(Boolean), group = $("group").value;
    shown = [];
    for (let i = 0; i < rows; i++) {
      if ((group === "" || data.group[i] === Number(group)) && find.every((word) => words[i].includes(word))) shown.push(i);
    }
    if (column >= 0) {
      const key = keys[column];
      shown.sort((a, b) => { const x = key(a), y = key(b); return (x < y ? -1 : x > y ? 1 : a - b) * (up ? 1 : -1); });
    }
    page = 0;
    draw();
    $("view").href = "#" + new URLSearchParams({ rows: 1, ...(find.length && { find: $("find").value }), ...(group !== "" && { group: data.groups[Number(group)] }), ...(column >= 0 && { sort: up ? column : -1 - column }) });
  }
  function draw() {
    const body = document.querySelector("#answers tbody");
    body.replaceChildren(...shown.slice(page * size, (page + 1) * size).map((i) => {
      const row = document.createElement("tr");
      [data.query[i], number(data.answer[i], 1), interval(i), data.error[i] === null ? say("not known") : number(data.error[i], 2)].forEach((text) => {
        row.appendChild(document.createElement("td")).textContent = text;
      });
      return row;
    }));
    const pages = Math.max(1, Math.ceil(shown.length / size));
    $("count").textContent = say("{shown} of {all} answers", { shown: number(shown.length, 0), all: number(rows, 0) });
    $("page").textContent = say("page {page} of {pages}", { page: number(page + 1, 0), pages: number(pages, 0) });
    $("before").disabled = page === 0;
    $("after").disabled = page >= pages - 1;
  }
  const copied = () => navigator.clipboard.writeText([data.columns, ...shown.map((i) => [data.query[i], data.answer[i], interval(i), data.error[i]])].map((row) => row.join("\t")).join("\n"));
  function download() {
    const plain = (text) => /^'*[=+\-@\t\r]/.test(text) ? "'" + text : text;  // no spreadsheet runs it
    const quote = (given) => /[",\r\n]/.test(given) ? '"' + given.replaceAll('"', '""') + '"' : given;
    const lines = ["group,query,answer,standard_error,low_95,high_95"];
    for (const i of shown) {
      const round = (value) => value === null ? "" : Number(value.toFixed(6));
      lines.push([quote(plain(data.groups[data.group[i]])), quote(plain(data.query[i])), data.answer[i], data.error[i],
        round(data.low[i]), round(data.high[i])].join(","));
    }
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type: "text/csv" }));
    link.download = data.release + ".csv";
    link.click();
    URL.revokeObjectURL(link.href);
  }
  $("find").addEventListener("input", choose);
  $("group").addEventListener("change", choose);
  $("controls").addEventListener("submit", (event) => event.preventDefault());
  $("download").addEventListener("click", download);
  $("copy").addEventListener("click", copied);
  $("before").addEventListener("click", () => { page--; draw(); });
  $("after").addEventListener("click", () => { page++; draw(); });
  $("view").textContent = say("Link to this view");
  const buttons = [...document.querySelectorAll("th button")];
  function sort(chosen, upwards) {
    [column, up] = [chosen, upwards];
    for (const each of buttons) each.parentElement.setAttribute("aria-sort", Number(each.dataset.column) !== column ? "none" : up ? "ascending" : "descending");
  }
  for (const button of buttons) {
    const chosen = Number(button.dataset.column);
    button.addEventListener("click", () => { sort(chosen, chosen === column ? !up : true); choose(); });
  }
  for (const button of document.querySelectorAll(".only")) {
    button.addEventListener("click", () => { $("group").value = button.dataset.group; choose(); $("table").scrollIntoView(); });
  }
  // a view of the table, by its link; a site's search has its words before the '#', so that the page is asked for once
  function follow() {
    const view = new URLSearchParams(location.hash.slice(1)), asked = view.has("rows"), order = Number(view.get("sort") ?? NaN);
    if (asked) {
      const group = data.groups.indexOf(view.get("group"));
      $("group").value = group < 0 ? "" : group;
      if (Number.isInteger(order) && order >= -keys.length && order < keys.length) sort(order < 0 ? -1 - order : order, order >= 0);
    }
    $("find").value = (asked ? view : new URLSearchParams(location.search)).get("find") ?? "";
    choose();
    if (asked || $("find").value) $("table").scrollIntoView();
  }
  addEventListener("hashchange", () => { if (location.hash.startsWith("#rows=")) follow(); });
  follow();
})();
