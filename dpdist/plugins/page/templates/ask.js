// Further questions, answered from the published measurement in the page: what dpdist/asking computes, too. Nothing is sent.
(() => {
  const form = document.getElementById("ask");
  if (!form) return;
  const data = JSON.parse(document.getElementById("measured").textContent), { attributes, blocks, parts } = data;
  const floats = (k) => new Float64Array(Uint8Array.from(atob(data.arrays[k]), (letter) => letter.charCodeAt(0)).buffer);
  const arrays = {}, array = (k) => arrays[k] ??= floats(k);
  const rowsOf = (block) => block.rows.reduce((one, other) => one * other, 1), starts = [0];
  for (const block of blocks) starts.push(starts.at(-1) + rowsOf(block));
  const TOLERANCE = 1e-7, largest = (vector) => vector.reduce((most, one) => Math.max(most, Math.abs(one)), 0);
  const sum = (vector) => vector.reduce((one, other) => one + other, 0);

  // ---- linear functions of the cells: lists of products, each with a factor and a vector for some attributes
  const times = (one, other) => {
    const out = { factor: one.factor * other.factor, of: { ...one.of } };
    for (const [axis, vector] of Object.entries(other.of)) out.of[axis] = out.of[axis] ? vector.map((v, i) => v * out.of[axis][i]) : vector;
    return out;
  };
  const same = (one, other) => one.every((v, i) => v === other[i]);
  const ones = (axis) => Array(attributes[axis].size).fill(1);
  // a difference of two products that differ in one attribute only is one product
  const nothing = (product) => Object.values(product.of).some((vector) => !vector.some(Boolean));
  function merged(one, other) {
    if (nothing(one) || nothing(other)) return [one, other].filter((each) => !nothing(each));
    const axes = [...new Set([...Object.keys(one.of), ...Object.keys(other.of)])];
    const apart = axes.filter((axis) => !same(one.of[axis] ?? ones(axis), other.of[axis] ?? ones(axis)));
    if (apart.length > 1) return [one, other];
    if (!apart.length) return one.factor + other.factor ? [{ ...one, factor: one.factor + other.factor }] : [];
    const [axis] = apart, [a, b] = [one, other].map((each) => each.of[axis] ?? ones(axis));
    return [{ factor: 1, of: { ...one.of, [axis]: a.map((v, i) => one.factor * v + other.factor * b[i]) } }];
  }
  function ends(products) {
    const within = (one, other) => Object.entries(other.of).every(([axis, vector]) => vector.every((v, i) => v <= (one.of[axis]?.[i] ?? 1)) ) &&
      Object.keys(one.of).every((axis) => other.of[axis] || one.of[axis].every((v) => v >= 1));
    let [low, high] = [0, 0];
    for (const { factor, of } of products) {
      let both = [factor, factor];
      for (const vector of Object.values(of)) {
        const all = both.flatMap((one) => [one * Math.min(...vector), one * Math.max(...vector)]);
        both = [Math.min(...all), Math.max(...all)];
      }
      [low, high] = [low + both[0], high + both[1]];
    }
    if (products.length === 2) [low, high] = [within(products[0], products[1]) ? 0 : low, within(products[1], products[0]) ? 0 : high];
    if (data.least === null) return [-Infinity, Infinity];
    if (data.records !== null) return [data.records * low, data.records * high];
    return [low >= 0 ? 0 : -Infinity, high <= 0 ? 0 : Infinity];
  }

  // ---- weights of the noisy values
  const subsets = (axes) => axes.reduce((known, axis) => [...known, ...known.map((each) => [...each, axis])], [[]]);
  const named = new Set(parts.map(([axes]) => axes.join()));
  function split(axis, vector) {
    const share = data.means[axis], size = largest(vector);
    let mean = share === undefined ? sum(vector) / vector.length : sum(array(share).map((u, i) => u * vector[i]));
    if (Math.abs(mean) <= TOLERANCE * size) mean = 0;
    const rest = Array.from(vector, (v) => v - mean);
    return { mean, rest: largest(rest) > TOLERANCE * size ? rest : null };
  }
  function along(block, place, vector) {
    const map = block.maps[place], rows = block.rows[place];
    if (map === null) return vector.slice(vector.length - rows);
    const matrix = array(map), out = new Float64Array(rows);
    vector.forEach((v, i) => { if (v) for (let k = 0; k < rows; k++) out[k] += v * matrix[i * rows + k]; });
    return out;
  }
  function coordinates(products) {
    const out = new Float64Array(starts.at(-1));
    for (const { factor, of } of products) {
      const pieces = Object.fromEntries(Object.entries(of).map(([axis, vector]) => [axis, split(axis, vector)]));
      const axes = Object.keys(of).map(Number).sort((a, b) => a - b), varying = axes.filter((axis) => pieces[axis].rest);
      const scale = (some) => axes.filter((axis) => !some.includes(axis)).reduce((one, axis) => one * pieces[axis].mean, factor);
      for (const some of subsets(varying)) {
        if (scale(some) && !named.has(some.join())) throw Error(some.map((axis) => attributes[axis].title).join(", "));
      }
      for (const [some, number, share] of parts) {
        const amount = share * scale(some), block = blocks[number];
        if (!amount || !some.every((axis) => varying.includes(axis))) continue;
        const sides = block.axes.map((axis, place) => along(block, place, some.includes(axis) ? pieces[axis].rest : ones(axis)));
        let whole = [amount];
        for (const side of sides) whole = whole.flatMap((one) => Array.from(side, (v) => one * v));
        whole.forEach((v, i) => { out[starts[number] + i] += v; });
      }
    }
    return out;
  }
  const between = (products) => [...new Set(products.flatMap(({ of }) => Object.keys(of)))].map((axis) => attributes[axis].title).join(", ");
  function weights(products) {
    const given = coordinates(products), outside = data.outside === null ? [] : array(data.outside), lost = new Float64Array(outside.length / given.length);
    if (lost.length) given.forEach((v, i) => { for (let k = 0; k < lost.length; k++) lost[k] += v * outside[i * lost.length + k]; });
    if (largest(lost) > 1e-6 * largest(given)) throw Error(between(products));
    const matrix = data.matrix === null ? null : array(data.matrix), scale = 1 / data.scale;
    if (!matrix) return given.map((v) => v * scale);
    if (data.shape === "diagonal") return given.map((v, i) => v * matrix[i] * scale);
    const upper = data.shape === "upper", n = given.length, width = upper ? n : matrix.length / n, out = new Float64Array(width);
    for (let i = 0, place = 0; i < n; i++) {
      const first = upper ? i : 0, v = given[i] * scale;
      if (v) for (let k = first; k < width; k++) out[k] += v * matrix[place + k - first];
      place += width - first;
    }
    return out;
  }
  const dot = (one, other) => one.reduce((total, v, i) => total + v * other[i], 0);
  const widthAt = (x) => { const [a, b, c] = data.width; return a + x * (4 * b - 3 * a - c) + x * x * 2 * (a - 2 * b + c); };
  function read(products) {
    const given = weights(products), squares = dot(given, given);
    const near = data.single && products.length > 1 ? 1 : squares > 0 ? Math.min(1, given.reduce((total, v) => total + v ** 4, 0) / squares ** 2) : 1;
    const error = Math.sqrt(squares) * data.deviation;
    return { given, value: dot(given, array(data.values)), error, half: error * widthAt(near) };
  }
  const clip = (value, [low, high]) => Math.min(Math.max(value, low), high);

  // ---- kinds of answers
  function counted(products) {
    const { value, error, half } = read(products), cut = ends(products);
    return { value, error, low: clip(value - half, cut), high: clip(value + half, cut) };
  }
  // Fieller 1954: every ratio r for which above - r below lies within so many standard errors of zero
  function ratio(above, below) {
    const [one, other] = [read(above), read(below)], width = widthAt(1), variance = data.deviation ** 2;
    const [a, b, c] = [dot(one.given, one.given), dot(one.given, other.given), dot(other.given, other.given)].map((v) => v * variance);
    if (other.value === 0) return { value: NaN, error: null, low: null, high: null };
    const value = one.value / other.value, square = other.value ** 2 - width ** 2 * c;
    if (square <= 0) return { value, error: null, low: null, high: null };
    const middle = one.value * other.value - width ** 2 * b, spread = Math.sqrt(Math.max(middle ** 2 - square * (one.value ** 2 - width ** 2 * a), 0));
    const error = Math.sqrt(Math.max(a - 2 * value * b + value ** 2 * c, 0)) / Math.abs(other.value);
    return { value, error, low: (middle - spread) / square, high: (middle + spread) / square };
  }
  function shared(above, below) {
    const found = ratio(above, below), remark = Number.isNaN(found.value) ? form.dataset.zero : found.error === null ? form.dataset.unbounded : "";
    const low = found.low !== null && [above, below].every((each) => ends(each)[0] >= 0) ? Math.max(found.low, 0) : found.low;
    return { ...found, low, remark };
  }
  function mean(axis, product) {
    const { present, amount, range } = attributes[axis].numbers, within = (vector) => [times(product, { factor: 1, of: { [axis]: vector } })];
    const found = ratio(within(amount), within(present));
    if (found.error === null) return { value: clip(found.value, range), error: null, low: range[0], high: range[1], remark: form.dataset.empty };
    const inside = found.value > range[0] && found.value < range[1];
    const value = clip(found.value, range), by = value - found.value;  // an interval about a mean beyond the range moves into it with the mean
    return { value, error: inside ? Math.min(found.error, (range[1] - range[0]) / 2) : null, low: clip(found.low + by, range), high: clip(found.high + by, range) };
  }
  function quantile(axis, share, product) {
    const { declared, labels } = attributes[axis], kept = [];
    let estimate = 0, before = Infinity;
    for (let t = 0; t < declared; t++) {
      let [value, half] = [Infinity, 0];
      if (t < declared - 1) {
        const row = ones(axis).map((_, i) => i >= declared ? 0 : (i <= t ? 1 : 0) - share);
        ({ value, half } = read([times(product, { factor: 1, of: { [axis]: row } })]));
        if (value < 0) estimate++;
      }
      if ((t === declared - 1 || value >= -half) && before) kept.push(t);
      before = value <= half;
    }
    const [low, high] = kept.length ? [Math.min(kept[0], estimate), Math.max(kept.at(-1), estimate)] : [estimate, estimate];
    return { value: labels[estimate], error: null, low: labels[low], high: labels[high] };
  }

  // ---- the form: groups of records, and the same question in words
  const quoted = (text) => /^[\w.-]+$/.test(text) ? text : text.includes("'") ? `"${text}"` : `'${text}'`;
  const choices = attributes.flatMap((each, axis) => each.labels.length ? [{ ...each, axis, groups: null }, ...each.levels.map((level) => ({ ...level, axis, size: each.size, ordered: false, extra: each.labels.slice(each.declared) }))] : []);
  const group = (choice, value) => Array.from({ length: choice.size }, (_, i) => {
    const { groups, labels } = choice;
    if (!groups) return i === value ? 1 : 0;
    return (i < groups.length ? groups[i] : labels.length + i - groups.length) === value ? 1 : 0;
  });
  function chosen(side) {
    let product = { factor: 1, of: {} };
    const words = [];
    choices.forEach((choice, k) => {
      const [first, last] = ["first", "last"].map((end) => form.elements[`${side}-${k}-${end}`]?.value ?? "");
      if (!first && !last) return;
      const { axis, declared, edges } = choice, name = quoted(choice.name);
      if (!choice.ordered || !edges) {
        product = times(product, { factor: 1, of: { [axis]: group(choice, Number(first)) } });
        words.push(`${name}=${quoted(choice.labels[Number(first)])}`);
        return;
      }
      const [low, high] = [first ? Number(first) : 0, last ? Number(last) : declared - 1];
      if (low > 0) words.push(`${name}>=${edges[low]}`);
      if (high < declared - 1) words.push(`${name}<${edges[high + 1]}`);
      if (low > 0 || high < declared - 1) product = times(product, { factor: 1, of: { [axis]: Array.from({ length: choice.size }, (_, i) => i >= low && i <= high ? 1 : 0) } });
    });
    return { product, words: words.join(", ") };
  }
  function answers() {
    const [what, of] = form.elements.what.value.split(":"), axis = Number(of), two = what === "share" || what === "difference";
    if (what === "chosen") {
      const { question, by, rows } = data.chosen[axis];
      return [question, by, rows.map(([label, value, low, high]) => [label, { value, error: null, low, high }])];
    }
    const one = chosen("one"), other = two ? chosen("other") : { product: null, words: "" }, by = choices[form.elements.by.value];
    if (what === "share" && !one.words) throw Error(form.dataset.which);
    if (two && one.words === other.words) throw Error(form.dataset.alike);
    const groups = by ? [...(by.shown ?? by.labels), ...(by.extra ?? [])].map((label, value) => [label, { factor: 1, of: { [by.axis]: group(by, value) } }]) : [["", { factor: 1, of: {} }]];
    const kinds = {
      count: (g) => counted([times(g, one.product)]),
      difference: (g) => counted(merged(times(g, one.product), { ...times(g, other.product), factor: -1 })),
      share: (g) => shared([times(times(g, other.product), one.product)], [times(g, other.product)]),
      total: (g) => counted([times(times(g, one.product), { factor: 1, of: { [axis]: attributes[axis].numbers.amount } })]),
      mean: (g) => mean(axis, times(g, one.product)),
      median: (g) => quantile(axis, 0.5, times(g, one.product)),
    };
    const grouped = by ? ` by ${quoted(by.name)}` : "", where = (words) => words ? ` where ${words}` : "";
    const text = {
      count: () => `count${grouped}${where(one.words)}`,
      difference: () => `sum of ${one.words || "all"} minus sum of ${other.words || "all"}${grouped}`,
      share: () => `share of ${one.words}${grouped}${where(other.words)}`,
    }[what]?.() ?? `${what} of ${quoted(attributes[axis].name)}${grouped}${where(one.words)}`;
    return [text, by?.title ?? "", groups.filter(([, g]) => Object.values(g.of).every((vector) => vector.some(Boolean))).map(([label, g]) => [label, kinds[what](g)])];
  }

  // ---- what is shown
  const text = (value, digits) => typeof value === "string" ? value : Number.isNaN(value) ? "" : number(value, digits);
  const [table, told, command] = ["ask-answers", "ask-told", "ask-command"].map((id) => document.getElementById(id));
  function show(event) {
    event?.preventDefault();
    try {
      const [question, title, found] = answers();
      table.querySelector("th").textContent = title;
      table.querySelector("tbody").replaceChildren(...found.map(([label, { value, error, low, high, remark }]) => {
        const row = document.createElement("tr"), digits = Math.abs(value) < 10 ? 4 : 1;
        const cells = [label || form.dataset.all, text(value, digits), error === null ? "" : text(error, digits + 1), low === null ? form.dataset.unknown : say("{low} to {high}", { low: text(low, digits), high: text(high, digits) }), remark ?? ""];
        cells.forEach((cell, k) => { row.appendChild(document.createElement(k ? "td" : "th")).textContent = cell; });
        row.firstChild.scope = "row";
        row.answer = { value, error, low, high };
        return row;
      }));
      table.parentElement.hidden = command.hidden = false;
      command.querySelector("code").textContent = `${form.dataset.command} ${JSON.stringify(question)}`;
      told.textContent = `${number(found.length, 0)} ${form.dataset[found.length === 1 ? "answer" : "answers"]}`;
    } catch (error) {
      if (error.constructor !== Error) throw error;
      table.parentElement.hidden = command.hidden = true;
      told.textContent = error.message === form.dataset.which || error.message === form.dataset.alike ? error.message : `${form.dataset.unmeasured} ${error.message}.`;
    }
  }
  const option = (value, label) => Object.assign(document.createElement("option"), { value, textContent: label });
  choices.forEach((choice, k) => {
    for (const side of ["one", "other"]) for (const end of ["first", "last"]) {
      form.elements[`${side}-${k}-${end}`]?.append(...(choice.shown ?? choice.labels).slice(0, choice.edges ? choice.declared : undefined).map((label, value) => option(value, label)));
    }
    form.elements.by.append(option(k, choice.title));
  });
  const change = () => {
    const what = form.elements.what.value;
    for (const each of form.querySelectorAll("[data-for]")) each.hidden = !each.dataset.for.split(" ").includes(what.split(":")[0]);
  };
  form.addEventListener("change", change);
  form.addEventListener("submit", show);
  change();
  form.hidden = false;
})();
