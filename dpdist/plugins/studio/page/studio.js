"use strict";
// The page holds one spec as a plain object; every change asks the server what it means. Nothing else decides anything.
const token = new URLSearchParams(location.search).get("token") || "";
const at = (id) => document.getElementById(id);
let spec = {}, columns = [], measuresLoss = false, turn = 0, waiting = 0;

async function ask(task, body = {}) {
  const head = {"Content-Type": "application/json", "X-Token": token};
  const answer = await fetch("/ask/" + task, {method: "POST", headers: head, body: JSON.stringify(body)});
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.refused || "the studio has ended; start it again");
  return found;
}

function make(tag, facts = {}, ...inside) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(facts)) key in made ? (made[key] = value) : made.setAttribute(key, value);
  made.append(...inside);
  return made;
}
const field = (words, input) => make("label", {}, words + " ", input);
const listed = (text) => text.split(",").map((part) => part.trim()).filter(Boolean);
const number = (text) => (text.trim() === "" || isNaN(Number(text)) ? text.trim() : Number(text));

function input(words, value, change, facts = {}) {
  const made = make("input", {value: value ?? "", ...facts});
  made.addEventListener("input", () => { change(made.value); changed(); });
  return field(words, made);
}
function choice(words, value, options, change) {
  const made = make("select", {}, ...options.map(([key, text]) => make("option", {value: key, textContent: text, selected: key === value})));
  made.addEventListener("change", () => { change(made.value); changed(); });
  return field(words, made);
}
function put(place, key, value) {
  if (value === "" || value === undefined || (Array.isArray(value) && !value.length)) delete place[key];
  else place[key] = value;
}
const part = (key) => (spec[key] ??= {});
const LEFT_OUT_SHARE = 0.05;
const bounded = () => Boolean(spec.records?.person?.column || Object.keys(spec.sums ?? {}).length);
const alone = () => !(spec.stream || spec.postprocess?.consistent_with || spec.records?.counts);
// What bounds leave out is asked for with the first of them and goes with the last; in between it stays as somebody left it.
function rebound(change) {
  const before = bounded();
  change();
  if (!bounded()) delete spec.left_out;
  else if (!before && measuresLoss && alone()) spec.left_out = {share: LEFT_OUT_SHARE};
}

// ---- the form

function release() {
  const records = part("records"), person = records.person || {};
  const names = columns.map((each) => each.name);
  const setPerson = (key, value) => { put(records.person ??= {}, key, value); if (!Object.keys(records.person).length) delete records.person; };
  const who = names.length
    ? choice("Column that tells persons apart", person.column ?? "", [["", "none: each record by itself"], ...columns.map((each) => [each.name, each.name + (each.person ? " (by its name)" : "")])], (value) => { rebound(() => setPerson("column", value)); draw(); })
    : input("Column that tells persons apart", person.column, (value) => { rebound(() => setPerson("column", value)); budget(); });
  at("release").replaceChildren(
    input("Release", spec.release, (value) => put(spec, "release", value)),
    input("Title", spec.title, (value) => put(spec, "title", value)),
    input("Data set", (spec.ledger ??= {}).dataset, (value) => put(spec.ledger, "dataset", value)),
    input("Records", records.path, (value) => put(records, "path", value)),
    input("Records are called", records.called, (value) => put(records, "called", value), {placeholder: "records"}),
    who,
    input("Records of one person that count", person.most_records ?? 1, (value) => setPerson("most_records", number(value)), {type: "number", min: 1}),
  );
}

const ROLES = [["none", "not used"], ["categories", "names"], ["from", "whole numbers"], ["edges", "numbers in bins"], ["dates", "dates"], ["sums", "amounts to add up"], ["written", "as the YAML says"]];
const OUTSIDE = [["", "refuse the release"], ["drop", "are left out"], ["clip", "count in the nearest bin"]];
const BEGIN = {categories: () => ({categories: []}), from: () => ({from: 0, to: 99}), edges: () => ({edges: [0, 10, 20]}), dates: () => ({dates: {from: "", to: "", every: "day"}}), sums: () => ({from: 0, to: 100}), boolean: () => ({categories: ["false", "true"]})};
const LIKELY = {boolean: "boolean", text: "categories", whole: "from", number: "edges", date: "dates", time: "dates", money: "sums"};

function roleOf(name) {
  if (spec.sums?.[name]) return "sums";
  const meant = spec.domain?.[name];
  if (!meant) return "none";
  return ["categories", "from", "edges", "dates"].find((key) => key in meant && (key !== "categories" || Array.isArray(meant[key]))) ?? "written";
}
const earlier = {};  // what was declared of a column as something else: arrow keys pass by other choices
function setRole(name, role, kind) {
  earlier[`${roleOf(name)} ${name}`] = spec.sums?.[name] ?? spec.domain?.[name];
  delete part("domain")[name];
  if (spec.sums) { delete spec.sums[name]; if (!Object.keys(spec.sums).length) delete spec.sums; }
  const begin = role === "categories" && kind === "boolean" ? "boolean" : role;
  if (role in BEGIN) (role === "sums" ? part("sums") : spec.domain)[name] = earlier[`${role} ${name}`] ?? BEGIN[begin]();
}
function column(name, kind) {
  const role = roleOf(name), meant = role === "sums" ? spec.sums[name] : spec.domain?.[name] ?? {};
  const box = make("fieldset", {}, make("legend", {textContent: kind && kind !== "unknown" ? `${name} (${kind})` : name}));
  const fields = make("div", {className: "fields"});
  fields.append(choice("Counted as", role, ROLES.filter(([key]) => key !== "written" || role === "written"), (value) => { rebound(() => setRole(name, value, kind)); draw(); }));
  const set = (key, read = (text) => text) => (text) => put(meant, key, read(text));
  if (role === "categories") fields.append(input("All names, with commas between", (meant.categories || []).join(", "), (text) => { meant.categories = listed(text); }));
  if (role === "from") fields.append(input("From", meant.from, set("from", number), {type: "number"}), input("To", meant.to, set("to", number), {type: "number"}), input("In one bin", meant.width, set("width", number), {type: "number", min: 1, placeholder: "1"}));
  if (role === "edges") fields.append(input("Edges of the bins, with commas between", meant.edges.join(", "), (text) => { meant.edges = listed(text).map(number); }));
  if (role === "dates") {
    const days = meant.dates;
    fields.append(input("From", days.from, (text) => put(days, "from", text), {type: "date"}), input("To", days.to, (text) => put(days, "to", text), {type: "date"}), choice("Every", days.every ?? "day", ["hour", "day", "week", "month", "quarter", "year"].map((each) => [each, each]), (value) => put(days, "every", value)));
  }
  if (role === "sums") fields.append(input("From", meant.from, set("from", number), {type: "number", step: "any"}), input("To", meant.to, set("to", number), {type: "number", step: "any"}), input("Step", meant.step, set("step", number), {type: "number", step: "any", placeholder: "1"}), input("Unit", meant.unit, set("unit")));
  if (["from", "edges"].includes(role)) fields.append(input("Unit", meant.unit, set("unit")));
  if (["categories", "from", "edges", "dates"].includes(role)) fields.append(choice("Other values", meant.outside ?? "", role === "categories" ? OUTSIDE.slice(0, 2) : OUTSIDE, set("outside")), input("Label of missing ones", meant.missing, set("missing"), {placeholder: "as other values"}));
  box.append(fields);
  return box;
}
function drawColumns() {
  const known = new Map(columns.map((each) => [each.name, each.kind]));
  for (const name of [...Object.keys(spec.domain ?? {}), ...Object.keys(spec.sums ?? {})]) if (!known.has(name)) known.set(name, "");
  at("columns").replaceChildren(...[...known].filter(([name]) => name !== spec.records?.person?.column).map(([name, kind]) => column(name, kind)));
}

const KINDS = [["ways", "every table of so many attributes"], ["tables", "these tables"], ["cdf", "counts at or below each value"], ["sum", "sums"], ["mean", "means"], ["variance", "variances"], ["written", "as the YAML says"]];
const COUNTING = ["sum", "mean", "variance"];
function kindOf(entry) {
  const keys = Object.keys(entry).filter((key) => key !== "weight");
  if (keys.length === 1 && entry.marginals?.ways && Object.keys(entry.marginals).length === 1) return "ways";
  if (keys.length === 1 && entry.marginals?.of) return "tables";
  if (keys.length === 1 && entry.cdf) return "cdf";
  const statistic = COUNTING.find((key) => typeof entry[key] === "string");
  return keys.length === 2 && statistic && entry.marginals?.of ? statistic : "written";
}
function begun(kind) {
  const [name] = Object.keys(spec.domain ?? {}), amount = Object.keys(spec.sums ?? {})[0] ?? "";
  if (kind === "ways") return {marginals: {ways: [1]}};
  if (kind === "tables") return {marginals: {of: [[name ?? ""]]}};
  if (kind === "cdf") return {cdf: {of: name ?? ""}};
  return {marginals: {of: [name ? [name] : []]}, [kind]: amount};
}
function question(entry, place) {
  const kind = kindOf(entry), fields = make("div", {className: "fields"}), rest = kind === "written" ? KINDS : KINDS.slice(0, -1);
  fields.append(choice("Asks for", kind, rest, (value) => { if (value !== "written") spec.workload[place] = begun(value); draw(); }));
  const tables = (label) => input(label, entry.marginals.of.map((each) => each.join(", ")).join("; "), (text) => { entry.marginals.of = text.split(";").map(listed); });
  if (kind === "ways") fields.append(input("How many attributes", entry.marginals.ways.join(", "), (text) => { entry.marginals.ways = listed(text).map(number); }));
  if (kind === "tables") fields.append(tables("Tables: attributes with commas, tables with ;"));
  if (kind === "cdf") fields.append(input("Of", entry.cdf.of, (text) => { entry.cdf.of = text; }), input("By attributes, with commas between", (entry.cdf.by || []).join(", "), (text) => put(entry.cdf, "by", listed(text))));
  if (COUNTING.includes(kind)) fields.append(choice("Of", entry[kind], [[entry[kind], entry[kind] || "declare amounts first"], ...Object.keys(spec.sums ?? {}).filter((name) => name !== entry[kind]).map((name) => [name, name])], (value) => { entry[kind] = value; }), tables("By attributes with commas, tables with ;"));
  if (kind === "written") fields.append(make("code", {textContent: JSON.stringify(entry)}));
  fields.append(input("Weight", entry.weight, (text) => put(entry, "weight", number(text)), {type: "number", min: 0, step: "any", placeholder: "1"}));
  const away = make("button", {type: "button", textContent: "Remove"});
  away.addEventListener("click", () => { spec.workload.splice(place, 1); draw(); changed(); });
  const cost = make("p", {className: "soft", id: `cost-${place}`});
  return make("fieldset", {}, make("legend", {textContent: `Question ${place + 1}`}), fields, cost, away);
}

function leftOut() {
  const box = make("input", {type: "checkbox", checked: Boolean(spec.left_out)});
  box.addEventListener("change", () => { put(spec, "left_out", box.checked ? {share: LEFT_OUT_SHARE} : undefined); redrawn(budget); changed(); });
  const share = spec.left_out && input("Share of this release for it", spec.left_out.share ?? LEFT_OUT_SHARE, (text) => put(spec.left_out, "share", number(text)), {type: "number", min: 0, max: 1, step: "any"});
  return [field("Publish what the bounds leave out", box), ...(share ? [share] : [])];
}
const cap = () => ((spec.ledger ??= {}).cap ??= {});
function budget() {
  const own = part("budget"), key = "rho" in own ? "rho" : "epsilon", whole = cap();
  const slider = make("input", {type: "range", min: -2, max: 1.3, step: 0.02, value: Math.log10(Number(own[key]) || 1), id: "slider"});
  const said = () => { slider.ariaValueText = `${key} ${own[key]}`; };
  const exact = input(key, own[key], (text) => { put(own, key, number(text)); slider.value = Math.log10(Number(text) || 1); said(); }, {type: "number", min: 0, step: "any", id: "epsilon"});
  slider.addEventListener("input", () => { own[key] = Number((10 ** slider.value).toPrecision(2)); exact.firstElementChild.value = own[key]; said(); changed(); });
  said();
  const most = "rho" in whole ? "rho" : "epsilon";
  at("budget").replaceChildren(
    field(`This release: ${key}`, slider), exact,
    ...(key === "epsilon" ? [input("delta", own.delta, (text) => put(own, "delta", number(text)), {placeholder: "none: pure"})] : []),
    input(`All releases together: ${most}`, whole[most], (text) => put(whole, most, number(text)), {type: "number", min: 0, step: "any"}),
    ...(most === "epsilon" ? [input("All releases together: delta", whole.delta, (text) => put(whole, "delta", number(text)))] : []),
    ...(bounded() && measuresLoss ? leftOut() : []),
    field("Releases a year", make("input", {type: "range", id: "a-year", min: 1, max: 52, value: at("a-year")?.value ?? 12})),
  );
  at("a-year").addEventListener("input", () => year(last));
}
function assume() {
  const person = spec.records?.person ?? {}, given = spec.assume ?? {}, sized = Object.keys(spec.sums ?? {});
  const settle = (place, key, value) => {
    put(place, key, value);
    if (spec.assume.amounts && !Object.keys(spec.assume.amounts).length) delete spec.assume.amounts;
    const {records, persons, ...more} = spec.assume;
    if (!Object.keys(more).length) delete spec.assume;
    else if (persons === undefined) spec.assume.records = number(at("records").value);
  };
  const told = (words, key, example) => input(words, given[key], (text) => settle(part("assume"), key, text.trim()), {placeholder: example});
  at("assume").replaceChildren(
    ...(person.column ? [told("Records of a person" + (person.most_groups ? " in a group" : ""), "records_per_person", "geometric 3")] : []),
    ...(person.column && person.most_groups ? [told("Groups of a person", "groups_per_person", "poisson 4")] : []),
    ...sized.map((name) => input(`Amounts of ${name}`, given.amounts?.[name], (text) => settle(part("assume").amounts ??= {}, name, text.trim()), {placeholder: "lognormal 20 1.2"})),
  );
}
function bounds(found) {
  if (!found) return at("bounds").replaceChildren();
  const cells = (row) => [`${(100 * row.lost).toFixed(1)} %`, `${(100 * row.error).toFixed(1)} %`].map((text) => make("td", {className: "n", textContent: text}));
  const marks = (row) => [...(row.least ? ["least error"] : []), ...(row.as_planned ? ["as planned"] : [])].join(", ");
  const rowOf = (row) => make("tr", {}, make("th", {scope: "row", className: "n", textContent: row.value.toLocaleString("en")}), ...cells(row), make("td", {textContent: marks(row)}));
  const tables = [...new Set(found.rows.map((row) => row.bound))].map((bound) => {
    const head = ["Value", "Left out", "Error"].map((text) => make("th", {scope: "col", className: "n", textContent: text}));
    const rows = found.rows.filter((row) => row.bound === bound).map(rowOf);
    return make("table", {}, make("caption", {textContent: bound}), make("thead", {}, make("tr", {}, ...head, make("td"))), make("tbody", {}, ...rows));
  });
  const words = `Assumed: ${found.assumed}. The error is that of noise and loss together, as a share of a usual answer.`;
  at("bounds").replaceChildren(make("section", {className: "group"}, make("h3", {textContent: "What the bounds leave out"}), make("p", {className: "soft", textContent: words}), ...tables));
}
let last = {};
function year(found) {
  last = found;
  const wanted = Number(at("a-year").value);
  if (found.share === undefined) return at("year").replaceChildren();
  const left = found.share ? Math.floor((1 - (found.spent ?? 0)) / found.share + 1e-9) : wanted;
  const weeks = [...Array(wanted).keys()].map((place) => make("span", {className: place < left ? "paid" : "beyond"}));
  const words = `${wanted} releases a year like this one take ${(100 * wanted * found.share).toFixed(0)} % of what all may reveal` +
    (found.spent ? `, of which ${(100 * found.spent).toFixed(0)} % is spent` : "") +
    (wanted <= left ? "; all are paid for." : `; ${Math.max(left, 0)} are paid for. Lower epsilon, or publish less often.`);
  at("year").replaceChildren(make("p", {className: "soft", textContent: words}), make("div", {className: "weeks", role: "img", "aria-label": words}, ...weeks));
}

function draw() { redrawn(() => { release(); drawColumns(); at("questions").replaceChildren(...(spec.workload ??= []).map(question)); budget(); assume(); }); }
// Controls that are made anew are found again by their words, so that whoever uses the keyboard stays where they were.
const called = (each) => `${each.closest("fieldset")?.firstElementChild.textContent}: ${(each.closest("label")?.firstChild ?? each).textContent}`;
function redrawn(work) {
  const before = document.activeElement, words = called(before);
  work();
  if (!before.isConnected) ([...at("form").querySelectorAll("input, select, button")].find((each) => called(each) === words) ?? at("more-question")).focus();
}

// ---- what the server says of it

function changed() { clearTimeout(waiting); waiting = setTimeout(plan, 120); }
async function plan() {
  const own = ++turn;
  let found;
  try { found = await ask("plan", {content: spec, records: at("records").value, shape: at("shape").value}); }
  catch (error) { found = {refused: error.message, tables: []}; }
  if (own !== turn) return;
  tell(found.refused || `This spec is complete. ${(found.warnings || []).join(" ")}`, Boolean(found.refused));
  if (found.yaml !== undefined && document.activeElement !== at("yaml")) at("yaml").value = found.yaml;
  at("python").textContent = found.python ?? "";
  for (const id of ["charge", "save"]) at(id).setAttribute("aria-disabled", Boolean(found.refused));
  at("noise").textContent = found.refused ? "" : `${found.noise} noise by the mechanism ${found.mechanism}; epsilon ${short(found.epsilon)}${found.delta ? `, delta ${found.delta}` : ""}. Protected: ${found.protected}.`;
  at("tables").replaceChildren(...found.tables.map(group));
  bounds(found.bounds);
  if (found.bounds && document.activeElement !== at("records") && Number(at("records").value) !== found.bounds.records) { at("records").value = found.bounds.records; changed(); }
  year(found.refused ? {} : found);
}
function tell(words, refused) { at("status").textContent = words; at("status").classList.toggle("refused", refused); }
const whole = (value) => Math.round(value).toLocaleString("en");
const short = (value) => Number(value).toLocaleString("en", {maximumSignificantDigits: 3});

const SVG = "http://www.w3.org/2000/svg";
function drawn(tag, facts) {
  const made = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(facts)) made.setAttribute(key, value);
  return made;
}
function group(found) {
  const known = found.values.filter((value) => value !== null), most = Math.max(...known, 0) + found.half_width;
  const head = [make("h3", {textContent: found.heading}), make("p", {className: "soft", textContent: `${found.queries.toLocaleString("en")} answers, each ± ${short(found.half_width)} ${found.unit} at most, 95 times of 100`})];
  if (!known.length) return make("section", {className: "group"}, ...head);
  const rows = found.values.map((value, place) => {
    const scale = (each) => (100 * Math.max(0, each)) / most, drowns = found.half_width >= value;
    const picture = drawn("svg", {viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true"});
    picture.append(drawn("rect", {class: "bar", x: 0, y: 2, height: 6, width: scale(value)}), drawn("line", {class: "whisker", x1: scale(value - found.half_width), x2: scale(value + found.half_width), y1: 5, y2: 5, "vector-effect": "non-scaling-stroke"}));
    return make("tr", {className: drowns ? "drowns" : ""}, make("th", {scope: "row", textContent: found.labels[place]}), make("td", {className: "n", textContent: `${whole(value)} ± ${short(found.half_width)}`}), make("td", {}, picture));
  });
  const more = found.queries - rows.length;
  return make("section", {className: "group"}, ...head, make("table", {}, make("tbody", {}, ...rows)), ...(more > 0 ? [make("p", {className: "soft", textContent: `and ${more.toLocaleString("en")} more`})] : []));
}

async function tried(work) { try { return await work(); } catch (error) { tell(error.message, true); return undefined; } }
// A button that is disabled loses the focus; these keep it, and do nothing while the spec is refused.
function pressed(id, work) { at(id).addEventListener("click", () => at(id).ariaDisabled === "true" || tried(work)); }
const toNewest = (id) => at(id).lastElementChild?.querySelector("select").focus();
at("more-question").addEventListener("click", () => { (spec.workload ??= []).push(begun("ways")); draw(); toNewest("questions"); changed(); });
at("more-column").addEventListener("click", () => { let count = 1; while (`column${count}` in part("domain")) count++; const name = prompt("What is the column called?", `column${count}`); if (name) { columns.push({name, kind: ""}); draw(); toNewest("columns"); } });
at("weigh").addEventListener("click", () => tried(async () => {
  const {costs} = await ask("costs", {content: spec});
  for (const each of costs) at(`cost-${each.question}`).textContent = each.narrower === null ? "It shares no table with the others." : `Without it, the intervals of the others would be ${Math.max(0, 100 * (1 - 1 / each.narrower)).toFixed(0)} % narrower.`;
}));
at("use-yaml").addEventListener("click", () => tried(async () => { spec = (await ask("parse", {yaml: at("yaml").value})).content; draw(); changed(); }));
pressed("save", async () => { const {saved} = await ask("save", {content: spec}); tell(`Saved as ${saved}.`, false); });
pressed("charge", async () => {
  const found = await ask("charge", {content: spec});
  at("what").textContent = `Release ${found.release} takes ${(100 * found.share).toFixed(1)} % of what all releases of ${found.dataset} may ever reveal` + (found.spent === null ? "" : `; ${(100 * found.spent).toFixed(1)} % is spent`) + `. It cannot be given back once noise is drawn.`;
  at("yes").onclick = () => { at("confirm").close(); publish(found.digest); };
  at("confirm").showModal();
});
at("no").addEventListener("click", () => at("confirm").close());
at("close").addEventListener("click", () => at("running").close());
async function publish(confirmed) {
  const started = await tried(() => ask("start", {content: spec, confirmed}));
  if (!started) return;
  at("running").showModal();
  for (;;) {
    const found = await tried(() => ask("progress"));
    if (!found) return;
    at("printed").textContent = found.printed.join("\n");
    if (found.ended !== null) { await plan(); tell(found.ended === 0 ? "Published." : "The run was refused; see what it said.", found.ended !== 0); return; }
    await new Promise((done) => setTimeout(done, 300));
  }
}
for (const id of ["records", "shape"]) at(id).addEventListener("input", changed);
at("records").addEventListener("input", () => { if (spec.assume) { delete spec.assume.persons; spec.assume.records = number(at("records").value); } });
at("form").addEventListener("submit", (event) => event.preventDefault());

tried(async () => {
  const begin = await ask("state");
  spec = begin.content; columns = begin.columns; measuresLoss = begin.measures_loss;
  at("path").textContent = begin.path + (begin.comments ? " (its comments are not kept when you save)" : "");
  draw(); plan();
});
