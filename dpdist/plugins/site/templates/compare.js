// Any two releases of a site compared; the same rules as dpdist/plugins/site/release_comparison.py.
(() => {
  const held = document.getElementById("pairs");
  if (!held) return;
  const data = JSON.parse(held.textContent), $ = (id) => document.getElementById(id), most = 20;
  const printed = [$("first").value, $("second").value];
  function show() {
    const [first, second] = [$("first").value, $("second").value], [a, b] = [data.releases[first], data.releases[second]];
    const shared = first === second || data.shared[first].some((draw) => data.shared[second].includes(draw));
    const found = [], words = $("words").value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    const alike = data.kinds[first] === data.kinds[second];
    let total = 0;
    data.keys.forEach(([, query], i) => {
      if (!alike || a[0][i] === null || b[0][i] === null) return;
      total++;
      const known = a[1][i] !== null && b[1][i] !== null;
      const half = !known ? NaN : shared ? a[1][i] + b[1][i] : Math.hypot(a[1][i], b[1][i]), change = b[0][i] - a[0][i];
      found.push({ query, before: a[0][i], after: b[0][i], change, half });
    });
    const wider = 1 + Math.log(Math.max(1, total)) / Math.log(20);
    for (const one of found) one.sure = Math.abs(one.change) > one.half * wider;
    const sure = found.filter((one) => one.sure).length, size = (one) => Number.isNaN(one.half) ? 0 : Math.abs(one.change) / Math.max(one.half, 1e-9);
    const shown = found.filter((one) => words.every((word) => one.query.toLowerCase().includes(word))).sort((x, y) => size(y) - size(x)).slice(0, most);
    $("differences").tBodies[0].replaceChildren(...shown.map((one) => {
      const row = document.createElement("tr"), digits = one.half > 0 && one.half < 10 ? 1 : 0;
      const change = (one.change > 0 ? "+" : "") + number(one.change, digits) + (one.half > 0 ? " ± " + number(one.half, digits) : "");
      [one.query, change, one.sure ? say("yes") : say("no"), number(one.before, 1), number(one.after, 1)].forEach((text) => { row.appendChild(document.createElement("td")).textContent = text; });
      return row;
    }));
    $("told").textContent = !alike ? say("{second} and {first} do not count the same, so they are not compared.", { first, second }) :
      say("{second} against {first}: {sure} of {total} differences stand out of the noise.", { first, second, sure: number(sure, 0), total: number(total, 0) });
    $("shared").hidden = !shared || !alike;
    if ($("drawn")) $("drawn").hidden = first !== printed[0] || second !== printed[1];
    $("view").href = "#" + new URLSearchParams({ first, second });
  }
  const view = new URLSearchParams(location.hash.slice(1));
  for (const id of ["first", "second"]) if (view.get(id) in data.releases) $(id).value = view.get(id);
  $("compare").hidden = false;
  $("compare").addEventListener("submit", (event) => event.preventDefault());
  for (const id of ["first", "second", "words"]) $(id).addEventListener("input", show);
  show();
})();
