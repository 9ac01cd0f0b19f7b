// Names for screen readers where the theme gives none, and keyboard access to tables that scroll.
document$.subscribe(() => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  document.querySelectorAll(".md-code__nav").forEach((each, i) => each.setAttribute("aria-label", `Code block ${i + 1}`));
  document.querySelectorAll(".md-nav--secondary nav").forEach((each, i) => {
    each.setAttribute("aria-label", `${each.getAttribute("aria-label")} (part ${i + 1} of the contents)`);
  });
  document.querySelectorAll(".md-typeset__scrollwrap").forEach((each) => each.setAttribute("tabindex", "0"));
});
