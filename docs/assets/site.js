// What the theme leaves out for keyboards and screen readers, also in what its script adds later.
function complete() {
  for (const table of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) table.tabIndex = 0;
  for (const buttons of document.querySelectorAll("nav.md-code__nav:not([role])")) buttons.role = "none";
  for (const section of document.querySelectorAll("nav[aria-labelledby^=__nav]")) {
    section.ariaLabel = section.querySelector(".md-nav__title").textContent.trim();
    section.removeAttribute("aria-labelledby");
  }
}
complete();
new MutationObserver(complete).observe(document.body, { childList: true, subtree: true });
