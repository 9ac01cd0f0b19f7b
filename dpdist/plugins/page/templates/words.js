// The page's language: its sentences by the English ones, its numbers by the browser's own rules (dpdist/language).
const words = JSON.parse(document.getElementById("look")?.textContent ?? "{}").words ?? {}, locale = document.documentElement.lang === "en" ? "en-US" : document.documentElement.lang;
const say = (sentence, values = {}) => (words[sentence] ?? sentence).replace(/\{(\w+)\}/g, (_, name) => values[name]);
const number = (value, digits) => (value < 0 && Number(value.toFixed(digits)) !== 0 ? "−" : "") +
  Math.abs(value).toLocaleString(locale, { minimumFractionDigits: digits, maximumFractionDigits: digits });
