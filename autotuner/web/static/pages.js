// Light and dark, and what stays as it was when a page is written anew.
"use strict";
(() => {
  const status = document.getElementById("status");
  const say = (text) => { if (status) status.textContent = text; };

  document.getElementById("theme")?.addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem("theme", root.dataset.theme); } catch { /* it holds for this page */ }
    document.dispatchEvent(new Event("theme"));
  });

  // On a narrow screen the tabs are moved sideways: the page's own is in sight.
  document.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

  // A page in the background asks for nothing; tables that were opened stay open, the focus stays where it was.
  let open = [];
  document.addEventListener("htmx:beforeRequest", (event) => { if (document.hidden) event.preventDefault(); });
  document.addEventListener("htmx:beforeSwap", () => {
    open = [...document.querySelectorAll("details[id][open]")].map((each) => each.id);
  });
  document.addEventListener("htmx:afterSwap", () => {
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    say("Updated");
  });
})();
