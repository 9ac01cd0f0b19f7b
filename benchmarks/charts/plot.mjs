// The four charts by Observable Plot in node, with jsdom for the document: see compare.py.
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
const require = createRequire(process.env.CHARTS_MODULES + "/");
const { JSDOM } = require("jsdom");
const Plot = await import(process.env.CHARTS_MODULES + "/@observablehq/plot/src/index.js").catch(() => require("@observablehq/plot"));

const folder = process.argv[2], charts = JSON.parse(readFileSync(`${folder}/charts.json`));
const shades = ["url(#hatch)", ...Array.from({ length: 7 }, (_, k) => `var(--h${k})`)];
const round = (value) => Math.round(value).toLocaleString("en");
const told = (row) => `${row.name}${row.series ? ", " + row.series : ""}: ${round(row.value)} (${round(row.low)} to ${round(row.high)})`;
const closed = (rings) => ({ type: "MultiPolygon", coordinates: rings.map((ring) => [[...ring, ring[0]]]) });

function options(chart, width, document) {
  const usual = { document, width, ariaLabel: chart.title, style: { fontSize: "13px", background: "none", fontFamily: "system-ui, sans-serif" } };
  const classes = { type: "ordinal", domain: [-1, 0, 1, 2, 3, 4, 5, 6], range: shades };
  const { rows } = chart;
  if (chart.kind === "bars") return { ...usual, marginLeft: 170, marginRight: 60, x: { grid: true, label: chart.measure }, y: { domain: rows.map((row) => row.name), label: null }, marks: [
    Plot.barX(rows, { y: "name", x: "value", fill: "var(--c0)", title: told }),
    Plot.ruleY(rows, { y: "name", x1: "low", x2: "high", stroke: "var(--ink)", marker: "tick" }),
    Plot.text(rows, { y: "name", x: "high", text: (row) => round(row.value), textAnchor: "start", dx: 6 })] };
  if (chart.kind === "steps") {
    const names = [...new Set(rows.map((row) => row.name))], last = chart.edges.at(-1);
    const placed = [...rows.map((row) => ({ ...row, at: chart.edges[names.indexOf(row.name)] })), ...rows.filter((row) => row.name === names.at(-1)).map((row) => ({ ...row, at: last }))];
    return { ...usual, x: { label: chart.axis }, y: { grid: true, label: chart.measure }, color: { domain: ["Female", "Male"], range: ["var(--c0)", "var(--c1)"], legend: true }, marks: [
      Plot.areaY(placed, { x: "at", y1: "low", y2: "high", fill: "series", fillOpacity: 0.42, curve: "step-after" }),
      Plot.lineY(placed, { x: "at", y: "value", stroke: "series", curve: "step-after" }), Plot.ruleY([0])] };
  }
  if (chart.kind === "heat") return { ...usual, marginLeft: 90, marginTop: width > 400 ? 30 : 90, padding: 0.03, x: { domain: [...new Set(rows.map((row) => row.series))], axis: "top", label: null, tickRotate: width > 400 ? 0 : -90 }, y: { domain: [...new Set(rows.map((row) => row.name))], label: chart.axis }, color: classes, marks: [
    Plot.cell(rows, { x: "series", y: "name", fill: "kind", title: told }),
    ...(width > 400 ? [Plot.text(rows, { x: "series", y: "name", text: (row) => round(row.value), fill: (row) => (row.kind < 0 ? "var(--ink)" : `var(--t${row.kind})`) })] : [])] };
  const features = chart.areas.map((rings, k) => ({ type: "Feature", geometry: closed(rings), ...rows[k] }));
  return { ...usual, height: Math.round(width * chart.size[1] / chart.size[0]), margin: 0, projection: { type: "identity", domain: { type: "MultiPoint", coordinates: [[0, 0], chart.size] } }, color: classes, marks: [
    Plot.geo({ type: "Feature", geometry: closed(chart.others) }, { stroke: "var(--line)" }),
    Plot.geo(features, { fill: "kind", stroke: "var(--paper)", strokeWidth: 0.8, title: told })] };
}

for (let turn = 0; turn < 2; turn++) {
  const begin = process.cpuUsage();
  for (const [name, chart] of Object.entries(charts)) for (const width of [720, 350]) {
    const { document } = new JSDOM("").window;
    writeFileSync(`${folder}/plot-${name}-${width}.svg`, Plot.plot(options(chart, width, document)).outerHTML.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" role="img" '));
  }
  const { user, system } = process.cpuUsage(begin);
  writeFileSync(`${folder}/plot.again`, String((user + system) / 1e6));
}
