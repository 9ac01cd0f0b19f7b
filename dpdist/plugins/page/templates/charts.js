// Charts: values on hover and by keyboard, one series, one row or column of a map, logarithms, intervals in two forms, downloads, links.
// The static SVGs stay as they are until a reader asks for another view; no network, no library (docs/decisions/0016-page.md).
(() => {
  const look = document.getElementById("look");
  if (!look) return;
  const style = JSON.parse(look.textContent), svgNS = "http://www.w3.org/2000/svg", colours = 6;
  const make = (name, attributes = {}, text = "") => {
    const found = document.createElementNS(svgNS, name);
    for (const [key, value] of Object.entries(attributes)) found.setAttribute(key, value);
    if (text) found.textContent = text;
    return found;
  };
  const element = (name, properties = {}, text = "") => Object.assign(document.createElement(name), properties, text ? { textContent: text } : {});
  const digitsOf = (half, value) => half > 0 && half < 10 ? Math.max(0, 1 - Math.floor(Math.log10(half))) : half > 0 || Number.isInteger(value) ? 0 : 2;
  const save = (name, blob) => {
    const link = element("a", { href: URL.createObjectURL(blob), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };

  function chart(figure, place) {
    const data = JSON.parse(figure.querySelector("script").textContent);
    const plot = figure.querySelector(".plot"), svgs = [...plot.querySelectorAll("svg")];
    const rows = data.x.length;
    data.h = data.h.map((column) => column.length < rows ? Array(rows).fill(column[0]) : column);
    const several = data.s.length, heat = data.kind === "heat", map = data.kind === "map", bars = data.kind === "bars";
    // of more than a few curves each has a plot of its own, at an offset from the first
    const apart = Boolean(data.p[0].offsets), offset = (k, s) => data.p[k].offsets?.[s] ?? [0, 0];
    const shifted = ([dx, dy], parts) => { const found = make("g", { transform: `translate(${dx} ${dy})` }); found.append(...parts); return found; };
    const plain = svgs.map((svg) => Object.fromEntries(["scale", "marks", "values"].map((name) => [name, [...(svg.querySelector("g." + name)?.childNodes ?? [])]])));
    const state = { log: false, form: bars ? "bars" : "band", only: -1 };
    const usual = state.form;
    let at = -1, series = 0;
    const height = (i, s) => data.v[s][i] / (data.w ? data.w[i] : 1);
    const spread = (i, s) => (data.h[s][i] ?? 0) / (data.w ? data.w[i] : 1);
    // an end of an interval, cut at what is possible; without an interval the value itself
    const cut = (v) => Math.min(Math.max(v, data.b[0] ?? -Infinity), data.b[1] ?? Infinity);
    const end = (i, s, sign) => data.r ? data.r[(sign + 1) / 2][s][i] : cut(data.v[s][i] + sign * (data.h[s][i] ?? 0));
    const edge = (i, s, sign) => data.h[s][i] > 0 ? end(i, s, sign) / (data.w ? data.w[i] : 1) : height(i, s);
    const between = (i, s, digits) => say("{low} to {high}", { low: number(end(i, s, -1), digits), high: number(end(i, s, 1), digits) });
    const told = (i, s) => {
      const v = data.v[s][i], h = data.h[s][i], digits = digitsOf(h, v);
      return number(v, digits) + (h > 0 ? data.r ? ` (${between(i, s, digits)})` : " ± " + number(h, digits) : "");
    };
    const shown = () => data.s.map((_, s) => s).filter((s) => heat || (map && state.only < 0 ? data.p[0].shown.includes(s) : state.only < 0 || s === state.only));
    // of a map a row is chosen by its place, a column by its place after all rows
    const chosen = (i, s) => state.only < 0 || !heat || state.only === i || state.only === rows + s;

    // ---- where values are
    function logEnds() {
      let high = 0, low = Infinity;
      for (const s of shown()) for (let i = 0; i < rows; i++) {
        high = Math.max(high, height(i, s), edge(i, s, 1));
        if (height(i, s) > 0) low = Math.min(low, height(i, s));
      }
      high = 10 ** Math.ceil(Math.log10(Math.max(high, 1e-9)) - 1e-9);
      return [Math.max(10 ** Math.floor(Math.log10(Math.min(low, high / 10)) + 1e-9), high / 1e6), high];
    }
    function mapper(k) {
      const p = data.p[k], [a, b] = bars ? p.x : [p.y[1], p.y[0]];
      if (!state.log) return (v) => a + ((bars ? Math.min(v, p.scale[1]) : v) - p.scale[0]) / (p.scale[1] - p.scale[0]) * (b - a);
      const [low, high] = logEnds();
      return (v) => a + Math.log10(Math.max(v, low) / low) / Math.log10(high / low) * (b - a);
    }
    const along = (k) => {
      const { x, domain } = data.p[k];
      return (v) => x[0] + (v - domain[0]) / (domain[1] - domain[0]) * (x[1] - x[0]);
    };

    // ---- marks of another view than the printed one
    const ticks = (k) => apart ? data.p[k].offsets.map((by) => shifted(by, levels(k, by[0] === 0))) : levels(k, true);
    function levels(k, named) {
      const p = data.p[k], out = [], map = mapper(k), [low, high] = logEnds();
      const digits = (v) => v < 1 ? Math.ceil(-Math.log10(v)) : 0;
      for (let v = low; v <= high * 1.0001; v *= 10) {
        const at = map(v), text = number(v, digits(v));
        out.push(make("path", { class: "grid", d: bars ? `M${at} ${p.y[0]}V${p.y[1]}` : `M${p.x[0]} ${at}H${p.x[1]}` }));
        if (named) out.push(bars ? make("text", { x: at, y: p.y[1] + 16, class: "soft", "text-anchor": "middle" }, text)
          : make("text", { x: p.x[0] - 6, y: at + 4.5, class: "soft", "text-anchor": "end" }, text));
      }
      return out;
    }
    function barMarks(k) {
      const p = data.p[k], x = mapper(k), marks = [], values = [];
      for (const s of shown()) for (let i = 0; i < rows; i++) {
        const v = height(i, s), h = spread(i, s), low = edge(i, s, -1), high = edge(i, s, 1), y = p.tops[i] + s * p.thick, middle = y + (p.thick - 2) / 2, colour = s % colours;
        if (state.log || data.dots) marks.push(make("circle", { class: "f" + colour, cx: x(v), cy: middle, r: 5 }));
        else marks.push(make("path", { class: "f" + colour, d: `M${x(0)} ${y}H${x(v)}v${p.thick - 2}H${x(0)}z` }));
        if (h > 0) marks.push(state.form === "bars"
          ? make("path", { class: "whisker", d: `M${x(low)} ${middle}H${x(high)}M${x(low)} ${middle - 4}v8M${x(high)} ${middle - 4}v8` })
          : make("path", { class: "band ink", d: `M${x(low)} ${y}H${x(high)}v${p.thick - 2}H${x(low)}z` }));
        values.push(make("text", { x: Math.max(x(high), x(v), x(state.log ? v : 0)) + 6, y: middle + 4.5 }, told(i, s)));
      }
      return [marks, values];
    }
    function outline(xs, ys, steps, back = false) {
      const points = [];
      for (let i = 0; i < ys.length; i++) points.push(...(steps ? [[xs[i], ys[i]], [xs[i + 1], ys[i]]] : [[xs[i], ys[i]]]));
      return (back ? points.reverse() : points).map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L");
    }
    function curveMarks(k) {
      const y = mapper(k), xs = data.e.map(along(k)), steps = data.kind === "steps", marks = [];
      for (const s of shown()) {
        const colour = apart ? 0 : s % colours, before = marks.length, all = [...Array(rows).keys()], line = (sign) => all.map((i) => y(sign ? edge(i, s, sign) : height(i, s)));
        if (data.filled && !state.log) marks.push(make("path", { class: "area f" + colour, d: `M${outline(xs, line(0), steps)}V${y(0)}H${xs[0]}z` }));
        if (all.some((i) => spread(i, s) > 0)) {
          if (state.form === "band") marks.push(make("path", { class: "band f" + colour, d: `M${outline(xs, line(1), steps)}L${outline(xs, line(-1), steps, true)}z` }));
          else marks.push(make("path", { class: "whisker", d: all.map((i) => {
            const x = steps ? (xs[i] + xs[i + 1]) / 2 : xs[i], top = y(edge(i, s, 1)), low = y(edge(i, s, -1));
            return `M${x.toFixed(1)} ${top.toFixed(1)}V${low.toFixed(1)}M${(x - 2).toFixed(1)} ${top.toFixed(1)}h4M${(x - 2).toFixed(1)} ${low.toFixed(1)}h4`;
          }).join("") }));
        }
        marks.push(make("path", { class: "outline s" + colour, d: "M" + outline(xs, line(0), steps) }));
        if (!steps && rows <= 60) marks.push(make("path", { class: "dots s" + colour, d: line(0).map((v, i) => `M${xs[i].toFixed(1)} ${v.toFixed(1)}h.1`).join("") }));
        if (apart) marks.push(shifted(offset(k, s), marks.splice(before)));
      }
      return [marks, []];
    }
    // ---- one map in place of those side by side
    function areas(k) {
      const { name, hatch, large: [x, y, scale] } = data.p[k], found = make("g", { transform: `translate(${x} ${y}) scale(${scale})` });
      found.append(make("use", { href: `#${name}-x`, class: "other" }), ...data.k[state.only].map((c, i) => make("use", { href: `#${name}-${i}`, ...(c < 0 ? { fill: `url(#${hatch}l)` } : { class: "h" + c }) })));
      return [[found], []];
    }
    function draw() {
      const printed = !state.log && state.form === usual && state.only < 0;
      svgs.forEach((svg, k) => {
        const [marks, values] = printed ? [plain[k].marks, plain[k].values] : heat ? [plain[k].marks, plain[k].values] : map ? areas(k) : bars ? barMarks(k) : curveMarks(k);
        svg.querySelector("g.scale")?.replaceChildren(...(state.log ? ticks(k) : plain[k].scale));
        svg.querySelector("g.marks").replaceChildren(...marks);
        svg.querySelector("g.values")?.replaceChildren(...values);
        if (map) for (const [key, value] of [["viewBox", `0 0 ${svg.viewBox.baseVal.width} ${data.p[k].tall[+!printed]}`], ["height", data.p[k].tall[+!printed]]]) svg.setAttribute(key, value);
        svg.querySelector("g.chosen")?.remove();
        if (heat && state.only >= 0) svg.append(strip(data.p[k]));
      });
      if (heat) slice();
      mark();
      if (tools.link) tools.link.href = "#" + new URLSearchParams({ chart: place, ...(state.log && { log: 1 }), ...(state.form !== usual && { interval: state.form }), ...(state.only >= 0 && { only: state.only }) });
    }

    // ---- one row or column of a map: all others fade, its answers stand below as bars
    const slices = element("div", { className: "slice", tabIndex: 0, hidden: true });
    slices.setAttribute("role", "region");
    function strip(p) {
      const row = state.only < rows, [x, y] = [p.x[0], p.y[0]], [width, height] = [several * p.cell[0], rows * p.cell[1]];
      const [left, top] = row ? [x, y + state.only * p.cell[1]] : [x + (state.only - rows) * p.cell[0], y];
      const inner = row ? `M${left} ${top}h${width}v${p.cell[1]}h${-width}z` : `M${left} ${top}h${p.cell[0]}v${height}h${-p.cell[0]}z`;
      const found = make("g", { class: "chosen" });
      found.append(make("path", { class: "faded", "fill-rule": "evenodd", d: `M${x} ${y}h${width}v${height}h${-width}z${inner}` }), make("path", { class: "rim", d: inner }));
      return found;
    }
    function slice() {
      slices.hidden = state.only < 0;
      if (slices.hidden) return slices.replaceChildren();
      const row = state.only < rows, name = row ? data.x[state.only] : data.s[state.only - rows];
      const cells = (row ? data.s : data.x).map((text, j) => [text, ...(row ? [state.only, j] : [j, state.only - rows])]);
      const ends = cells.flatMap(([, i, s]) => [height(i, s), edge(i, s, -1), edge(i, s, 1)]);
      const low = Math.min(0, ...ends), x = (v) => 100 * (v - low) / (Math.max(...ends, low + 1e-9) - low);
      const table = element("table"), body = element("tbody"), kind = data.t[row ? 0 : 1], title = name.startsWith(kind.split(" (")[0]) ? name : `${kind}: ${name}`;
      for (const [text, i, s] of cells) {
        const v = height(i, s), line = element("tr");
        const svg = make("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" }), [a, b] = [x(0), x(v)].sort((one, other) => one - other);
        svg.append(make("rect", { class: "f0", x: a, y: 0, width: b - a, height: 10 }), make("rect", { class: "band ink", x: x(edge(i, s, -1)), y: 0, width: x(edge(i, s, 1)) - x(edge(i, s, -1)), height: 10 }));
        const [head, bar, said] = [element("th", { scope: "row" }, text), element("td"), element("td", {}, told(i, s))];
        bar.append(svg);
        line.append(head, bar, said);
        body.append(line);
      }
      table.append(element("caption", {}, title), body);
      slices.setAttribute("aria-label", title);
      slices.replaceChildren(table);
    }

    // ---- values on hover and by keyboard
    const tip = element("div", { className: "tip", hidden: true }), spoken = element("p", { className: "told" });
    spoken.setAttribute("role", "status");
    plot.append(tip);
    figure.append(spoken);
    plot.tabIndex = 0;
    plot.setAttribute("role", "group");
    plot.setAttribute("aria-label", say("{title}: arrow keys read the values", { title: data.title }));
    const visible = () => svgs.findIndex((svg) => svg.getBoundingClientRect().width > 0);
    function texts() {
      const v = data.v[series][at], h = data.h[series][at], digits = digitsOf(h, v);
      const name = [data.x[at], several > 1 ? data.s[series] : ""].filter(Boolean).join(", ");
      const range = h === null ? say("no interval is known") : h > 0 ? say("95 % interval {interval}", { interval: between(at, series, digits) }) : say("exact");
      return [name, number(v, digits) + (data.counted ? " " + data.counted : ""), range];
    }
    function mark(speak = false) {
      for (const svg of svgs) svg.querySelector("g.here")?.remove();
      tip.hidden = at < 0;
      if (at < 0) return;
      const k = visible();
      if (k < 0) return;
      const p = data.p[k], here = make("g", { class: "here" });
      let x, y;
      if (map) {
        const [left, top, size] = state.only < 0 && p.shown.includes(series) ? p.panels[p.shown.indexOf(series)] : p.large;
        here.append(make("use", { href: `#${p.name}-${at}`, transform: `translate(${left} ${top}) scale(${size})` }));
        [x, y] = [left + size * p.at[at][0], top + size * p.at[at][1]];
      } else if (heat) {
        [x, y] = [p.x[0] + series * p.cell[0], p.y[0] + at * p.cell[1]];
        here.append(make("rect", { x, y, width: p.cell[0], height: p.cell[1] }));
        x += p.cell[0] / 2;
      } else if (bars) {
        [x, y] = [mapper(k)(height(at, series)), p.tops[at] + series * p.thick];
        here.append(make("rect", { x: p.x[0], y: y - 1, width: Math.max(2, x - p.x[0]), height: p.thick }));
      } else {
        const xs = data.e.map(along(k));
        [x, y] = [data.kind === "steps" ? (xs[at] + xs[at + 1]) / 2 : xs[at], mapper(k)(height(at, series))];
        here.append(make("path", { d: `M${x} ${p.y[0]}V${p.y[1]}` }), make("circle", { cx: x, cy: y, r: 4.5 }));
        const [dx, dy] = offset(k, series);
        here.setAttribute("transform", `translate(${dx} ${dy})`);
        [x, y] = [x + dx, y + dy];
      }
      svgs[k].append(here);
      const [name, value, range] = texts(), box = svgs[k].getBoundingClientRect(), scale = box.width / svgs[k].viewBox.baseVal.width;
      tip.replaceChildren(element("strong", {}, name), element("span", {}, value), element("span", {}, range));
      const start = box.left - plot.getBoundingClientRect().left;
      tip.style.left = Math.max(0, Math.min(plot.clientWidth - tip.offsetWidth, start + x * scale - tip.offsetWidth / 2)) + "px";
      const above = y * scale - tip.offsetHeight - 12;
      tip.style.top = (above > -30 ? above : y * scale + 24) + "px";
      if (speak) spoken.textContent = `${name}: ${value}, ${range}`;
    }
    function pointed(event) {
      const k = visible();
      if (k < 0) return;
      const p = data.p[k], box = svgs[k].getBoundingClientRect(), scale = box.width / svgs[k].viewBox.baseVal.width;
      const x = (event.clientX - box.left) / scale, y = (event.clientY - box.top) / scale, among = shown();
      if (map) {
        const found = event.target.closest?.("g.marks use")?.getAttribute("href").split("-")[1], panels = [...svgs[k].querySelectorAll("g.marks > g")];
        at = found === undefined || found === "x" ? -1 : Number(found);
        if (at >= 0) series = state.only < 0 ? p.shown[panels.indexOf(event.target.parentNode)] : state.only;
      } else if (heat) {
        const [j, i] = [Math.floor((x - p.x[0]) / p.cell[0]), Math.floor((y - p.y[0]) / p.cell[1])];
        [at, series] = j >= 0 && j < several && i >= 0 && i < rows ? [i, j] : [-1, 0];
      } else if (bars) {
        at = p.tops.findIndex((top) => y >= top - 18 && y < top + p.thick * several + 4);
        series = at < 0 ? 0 : Math.max(0, Math.min(several - 1, Math.floor((y - p.tops[at]) / p.thick)));
        if (!among.includes(series)) series = among[0];
      } else {
        const panel = apart ? among.findIndex((s) => { const [dx, dy] = offset(k, s); return x > p.x[0] + dx - 9 && x < p.x[1] + dx + 9 && y > p.y[0] + dy - 30 && y < p.y[1] + dy + 30; }) : 0;
        if (panel < 0) { at = -1; return mark(); }
        const [dx] = offset(k, panel), value = p.domain[0] + (x - dx - p.x[0]) / (p.x[1] - p.x[0]) * (p.domain[1] - p.domain[0]);
        let low = 0, high = rows - 1;
        while (low < high) { const middle = (low + high + 1) >> 1; if (data.e[middle] <= value) low = middle; else high = middle - 1; }
        if (data.kind === "curve" && low + 1 < rows && data.e[low + 1] - value < value - data.e[low]) low++;
        at = low;
        const map = mapper(k);
        series = apart ? panel : among.reduce((best, s) => Math.abs(map(height(at, s)) - y) < Math.abs(map(height(at, best)) - y) ? s : best, among[0]);
      }
      mark();
    }
    plot.addEventListener("pointermove", pointed);
    plot.addEventListener("pointerdown", pointed);
    plot.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") { at = -1; mark(); } });
    plot.addEventListener("blur", () => { at = -1; mark(); });
    plot.addEventListener("keydown", (event) => {
      const among = shown(), turn = (s, by) => among[(Math.max(0, among.indexOf(s)) + by + among.length) % among.length];
      const [next, previous, more, less] = bars || heat || map ? ["ArrowDown", "ArrowUp", "ArrowRight", "ArrowLeft"] : ["ArrowRight", "ArrowLeft", "ArrowDown", "ArrowUp"];
      if (event.key === "Escape") at = -1;
      else if (event.key === next) at = Math.min(rows - 1, at + 1);
      else if (event.key === previous) at = Math.max(0, at - 1);
      else if (event.key === "Home") at = 0;
      else if (event.key === "End") at = rows - 1;
      else if (event.key === more || event.key === less) { at = Math.max(0, at); series = turn(series, event.key === more ? 1 : -1); }
      else return;
      if (!among.includes(series)) series = among[0];
      event.preventDefault();
      mark(true);
    });

    // ---- files
    const name = () => data.release + "-" + data.group.replace(/[^\w]+/g, "-").replace(/^-|-$/g, "").slice(0, 60);
    // shapes that stand in another chart of the page, for what is to stand without it
    function complete(svg) {
      const names = new Set([...svg.querySelectorAll("use")].map((use) => use.getAttribute("href").slice(1))), found = make("defs");
      found.append(...[...names].filter((name) => !svg.querySelector(`[id="${name}"]`)).map((name) => document.getElementById(name).cloneNode(true)));
      svg.prepend(found);
    }
    function drawn() {
      const svg = svgs[Math.max(0, visible())].cloneNode(true), box = svg.viewBox.baseVal, head = 30;
      svg.querySelector("g.here")?.remove();
      complete(svg);
      const inner = make("g", { transform: `translate(16 ${head + 16})` });
      inner.append(...svg.childNodes);
      const [width, height] = [box.width + 32, box.height + head + 56];
      svg.append(make("style", {}, `svg{${style.colours}}${style.rules}`), make("rect", { width, height, fill: "var(--paper)" }), make("text", { x: 16, y: 28, class: "name" }, data.title), inner,
        make("text", { x: 16, y: height - 12, class: "soft small" }, data.source));
      for (const [key, value] of Object.entries({ viewBox: `0 0 ${width} ${height}`, width, height })) svg.setAttribute(key, value);
      return [new XMLSerializer().serializeToString(svg), width, height];
    }
    function csv() {
      const safe = (text) => /^'*[=+\-@\t\r]/.test(text) ? "'" + text : text;  // no spreadsheet runs it
      const quote = (text) => /[",\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
      const round = (value) => Number(value.toFixed(6)), lines = ["value,series,answer,low_95,high_95"];
      for (const s of shown()) for (let i = 0; i < rows; i++) {
        if (!chosen(i, s)) continue;
        const v = data.v[s][i], h = data.h[s][i];
        lines.push([quote(safe(data.x[i])), quote(safe(data.s[s])), v, h === null ? "" : round(end(i, s, -1)), h === null ? "" : round(end(i, s, 1))].join(","));
      }
      return lines.join("\n") + "\n";
    }
    function picture() {
      const [text, width, height] = drawn(), image = new Image();
      image.onload = () => {
        const canvas = element("canvas", { width: 2 * width, height: 2 * height });
        canvas.getContext("2d").drawImage(image, 0, 0, 2 * width, 2 * height);
        canvas.toBlob((blob) => save(name() + ".png", blob), "image/png");
      };
      image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(text);
    }

    // ---- tools
    const tools = {}, menu = element("details", { className: "tools" }), bar = element("div"), only = figure.closest("section")?.querySelector(".only")?.parentElement;
    menu.append(element("summary", {}, say("View and download")), bar);
    const button = (text, act) => {
      const found = element("button", { type: "button" }, text);
      found.addEventListener("click", act);
      bar.append(found);
      return found;
    };
    const toggle = (text, act) => {
      const found = button(text, () => { act(); show(); });
      found.setAttribute("aria-pressed", "false");
      return found;
    };
    if (several > 1 && !apart) {
      const label = element("label", {}, say("Show") + " "), select = element("select");
      const options = (texts, first) => texts.map((text, s) => element("option", { value: first + s }, text));
      const grouped = (label, found) => { const group = element("optgroup", { label }); group.append(...found); return group; };
      select.append(element("option", { value: -1 }, say("all")), ...(heat ? [grouped(data.t[0], options(data.x, 0)), grouped(data.t[1], options(data.s, rows))] : options(data.s, 0)));
      select.addEventListener("change", () => { state.only = Number(select.value); at = -1; show(); });
      label.append(select);
      bar.append(label);
      tools.only = select;
    }
    if (map && several > 1) {
      const label = element("label", { className: "slider" }), input = element("input", { type: "range", min: -1, max: several - 1, value: -1 }), said = element("output");
      input.setAttribute("aria-label", data.t[1]);
      input.addEventListener("input", () => { state.only = Number(input.value); at = -1; show(); });
      label.append(input, said);
      plot.after(label);
      tools.slider = () => {
        input.value = state.only;
        said.textContent = state.only < 0 ? say("side by side") : data.s[state.only];
        input.setAttribute("aria-valuetext", said.textContent);
      };
    }
    if (!heat && !map) {
      tools.log = toggle(say("Log scale"), () => { state.log = !state.log; });
      if (data.h.some((part) => part.some((half) => half > 0))) {
        tools.form = toggle(bars ? say("Interval as band") : say("Interval as bars"), () => { state.form = state.form === "band" ? "bars" : "band"; });
      }
    }
    const files = element("span", { className: "files" }, say("Download") + " ");
    bar.append(files);
    for (const [text, act] of [["SVG", () => save(name() + ".svg", new Blob([drawn()[0]], { type: "image/svg+xml" }))], ["PNG", picture], ["CSV", () => save(name() + ".csv", new Blob([csv()], { type: "text/csv" }))]]) {
      const found = button(text, act);
      found.setAttribute("aria-label", say("Download {title} as {format}", { title: data.title, format: text }));
      files.append(found);
    }
    tools.link = element("a", {}, say("Link to this view"));
    bar.append(tools.link);
    button(say("Copy embed code"), () => {
      const address = `${location.href.split("#")[0]}${tools.link.hash}&embed=1`;
      navigator.clipboard.writeText(`<iframe src="${encodeURI(decodeURI(address))}" title="${data.title.replace(/[&<"]/g, (c) => `&#${c.charCodeAt(0)};`)}" width="760" height="520" style="border:0"></iframe>`);
    });
    if (only) bar.append(only);
    figure.append(...(heat ? [slices, menu] : [menu]));
    function show() {
      tools.log?.setAttribute("aria-pressed", state.log);
      tools.form?.setAttribute("aria-pressed", state.form !== usual);
      if (tools.only) tools.only.value = state.only;
      tools.slider?.();
      draw();
    }
    show();
    return (view) => {
      menu.open = true;
      state.log = !heat && !map && view.get("log") === "1";
      state.form = ["band", "bars"].includes(view.get("interval")) && tools.form ? view.get("interval") : usual;
      const only = Number(view.get("only") ?? -1);
      state.only = tools.only && Number.isInteger(only) && only < (heat ? rows : 0) + several ? only : -1;
      show();
      if (view.has("embed")) {
        svgs.forEach(complete);
        only?.remove();
        document.body.replaceChildren(element("h1", { className: "embedded" }, data.title), figure, element("p", { className: "soft-text" }, data.source));
      } else { reveal(figure); figure.scrollIntoView(); }
    };
  }

  // ---- what is folded: opened by links to what it holds (browsers without the rule for it need this), and all of it for print
  const reveal = (one) => { for (let found = one?.closest("details"); found; found = found.parentElement.closest("details")) found.open = true; };
  const groups = [...document.querySelectorAll(".group>details")], around = document.querySelectorAll("details:has(>.groups)");
  if (groups.length > 1) {
    const all = element("button", { type: "button", className: "fold" }), closed = () => groups.some((one) => !one.open), named = () => { all.textContent = closed() ? say("Open all charts") : say("Close all charts"); };
    all.addEventListener("click", () => { const open = closed(); for (const one of [...around, ...groups]) one.open = open; });
    for (const one of groups) one.addEventListener("toggle", named);
    named();
    document.querySelector(".groups").before(all);
  }
  let folded = [];
  addEventListener("beforeprint", () => { folded = [...document.querySelectorAll("details:not([open])")]; for (const one of folded) one.open = true; });
  addEventListener("afterprint", () => { for (const one of folded) one.open = false; });

  // ---- from a site: its releases, in their order, stand in the address, so that the published page itself is the same everywhere
  const series = document.getElementById("series"), ids = new URLSearchParams(location.search).get("series")?.split(",") ?? [];
  if (series && ids.length && ids.every((id) => /^[A-Za-z0-9][\w.-]{0,149}$/.test(id))) {
    const here = ids.indexOf(series.dataset.release);
    for (const [text, id] of [[say("Previous:"), ids[here - 1]], [say("Next:"), ids[here + 1]], [say("Latest:"), here < ids.length - 2 ? ids.at(-1) : ""]]) if (here >= 0 && id) {
      series.append(" · ", element("a", { href: `../${id}/index.html?series=${ids.join(",")}` }, `${text} ${id}`));
    }
    series.hidden = false;
  }

  const views = [...document.querySelectorAll("figure.chart")].map(chart);
  const follow = () => {
    const view = new URLSearchParams(location.hash.slice(1));
    if (view.has("chart")) return views[Number(view.get("chart"))]?.(view);
    const target = document.getElementById(location.hash.slice(1));
    if (target?.closest("details:not([open])")) { reveal(target); target.scrollIntoView(); }
  };
  addEventListener("hashchange", follow);
  follow();
})();
