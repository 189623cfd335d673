// Times in the reader's own zone; without this script they stay in UTC.
"use strict";
(() => {
  const form = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
  const write = (root) => {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const moment = new Date(time.dateTime);
      if (Number.isNaN(moment.getTime())) continue;
      time.title = time.title || time.textContent;
      time.textContent = form.format(moment);
    }
  };
  write(document);
  document.addEventListener("htmx:afterSwap", () => write(document));
})();
