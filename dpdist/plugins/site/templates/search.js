// Search over the tables of a site, which the page holds.
(() => {
  const held = document.getElementById("held");
  if (!held) return;
  const $ = (id) => document.getElementById(id), most = 50, rows = [];
  JSON.parse(held.textContent).forEach((table, place) => table?.query.forEach((query, i) => rows.push({ table, place, query, i, text: `${query} ${table.title}`.toLowerCase() })));
  function show() {
    const words = $("find").value.trim().toLowerCase().split(/\s+/).filter(Boolean), every = (text) => words.every((word) => text.includes(word));
    const found = words.length ? rows.filter((row) => every(row.text)) : [];
    $("found").hidden = !found.length;
    $("found").querySelector("tbody").replaceChildren(...found.slice(0, most).map(({ table, query, i }) => {
      const row = document.createElement("tr"), half = table.half[i], digits = half > 0 && half < 10 ? 1 : 0;
      for (const text of [query, number(table.value[i], digits) + (half > 0 ? " ± " + number(half, digits) : "")]) row.appendChild(document.createElement("td")).textContent = text;
      const link = row.appendChild(document.createElement("td")).appendChild(document.createElement("a"));
      link.textContent = `${table.title} (${table.about})`;
      link.href = `${table.link}&${new URLSearchParams({ find: query })}`;
      return row;
    }));
    const places = new Set(found.map((row) => row.place));
    document.querySelectorAll("[data-table]").forEach((row, place) => { row.hidden = words.length > 0 && !places.has(place) && !every(row.textContent.toLowerCase()); });
    $("told").textContent = say("{shown} of {all} answers", { shown: number(Math.min(most, found.length), 0), all: number(found.length, 0) });
    $("told").hidden = !words.length;
    history.replaceState(null, "", words.length ? "#" + new URLSearchParams({ find: $("find").value }) : "#");
  }
  $("find").value = new URLSearchParams(location.hash.slice(1)).get("find") ?? "";
  $("search").hidden = false;
  $("search").addEventListener("submit", (event) => event.preventDefault());
  $("find").addEventListener("input", show);
  show();
})();
