// Commands can be copied. Where a browser does not let a page write there, they are selected.
"use strict";
(() => {
  const status = document.getElementById("status");
  const say = (text) => { if (status) status.textContent = text; };
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button[data-copy]");
    if (!button) return;
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = "Copied";
      say("Copied");
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    } catch {
      const range = document.createRange();
      range.selectNodeContents(button.previousElementSibling);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      say("Selected: copy it with the keyboard");
    }
  });
})();
