// The scatter of every variant on a canvas: any two quantities or parameters, a colour, and a filter a parameter.
// It draws what /studies/NAME/variants.json has, which is by columns: 10,000 variants are some hundred kilobytes.
"use strict";
(() => {
  const box = document.getElementById("scatter-live"), form = document.getElementById("choose");
  const canvas = document.getElementById("canvas"), pen = canvas?.getContext("2d");
  if (!box || !form || !pen) return;
  const EDGE = 30, MARGIN = { top: 10, right: 14, bottom: 44, left: 66 }, NEAR = 14;
  const SERIES = 8;
  const HAS_LATENCY = new Set(["speedup", "us"]);
  let data = null, shown = [], drawn = null, chosen = -1;

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const kindColour = (name) => colour({ measured: "blue", raced_out: "sky", duplicate: "grey", wrong: "red", build: "orange", died: "purple", doubtful: "grey" }[name]);
  const spread = (number) => (number * 0.6180339887) % 1, aside = (number) => (number * 0.7548776662) % 1; // independent of each other
  const state = () => {
    const fields = new FormData(form), filters = new Map();
    for (const [key, value] of fields) {
      if (key.startsWith("p.")) filters.set(key.slice(2), [...(filters.get(key.slice(2)) ?? []), value]);
    }
    return { x: fields.get("x"), y: fields.get("y"), colour: fields.get("colour"), filters };
  };

  function value(name, place) {
    const quantity = data.quantities[name];
    if (quantity) return quantity.values[place];
    const parameter = data.parameters[name], level = parameter.values[place];
    return (level < 0 ? parameter.levels.length : level) + 0.62 * (spread(data.quantities.number.values[place]) - 0.5);
  }

  function axis(name) {
    const parameter = data.parameters[name];
    if (parameter) {
      const levels = parameter.values.some((level) => level < 0) ? [...parameter.levels, "absent"] : parameter.levels;
      return { name, label: name, levels, low: -0.6, high: levels.length - 0.4 };
    }
    let low = Infinity, high = -Infinity;
    for (const place of shown) {
      const found = value(name, place);
      if (found !== null) { low = Math.min(low, found); high = Math.max(high, found); }
    }
    if (low > high) { low = 0; high = 1; }
    const room = (high - low) * 0.04 || Math.abs(high) * 0.04 || 1;
    return { name, label: data.quantities[name].label, levels: null, low: low - room, high: high + room };
  }

  function ticks(found, wanted) {
    if (found.levels) return found.levels.map((text, at) => [at, text.slice(0, 10)]);
    const span = found.high - found.low;
    let step = 10 ** Math.floor(Math.log10(span / wanted));
    step *= [1, 2, 2.5, 5, 10].find((factor) => span / (step * factor) <= wanted) ?? 10;
    if (found.name === "number") step = Math.max(step, 1);  // trials are counted
    const made = [];
    for (let at = Math.ceil(found.low / step); at * step <= found.high; at += 1) {
      made.push([at * step, (at === 0 ? 0 : at * step).toLocaleString(undefined, { maximumSignificantDigits: 5 })]);
    }
    return made;
  }

  function filter(now) {
    const allowed = [...now.filters].map(([name, values]) => {
      const parameter = data.parameters[name];
      return parameter ? [parameter.values, new Set(values.map((each) => parameter.levels.indexOf(each)))] : null;
    }).filter(Boolean);
    shown = [];
    for (let place = 0; place < data.kind.length; place += 1) {
      if (allowed.every(([values, levels]) => levels.has(values[place]))) shown.push(place);
    }
  }

  function look(now) {
    if (now.colour === "kind" || !data.parameters[now.colour]) {
      const found = data.kinds.map((kind) => kindColour(kind.name));
      return { of: (place) => found[data.kind[place]], entries: [] };
    }
    const { levels, values } = data.parameters[now.colour], none = colour("grey");
    const series = Array.from({ length: SERIES }, (_, at) => colour(`series-${at}`));
    const entries = levels.map((text, at) => [`${now.colour}=${text}`, series[at % SERIES]]);
    if (values.some((level) => level < 0)) entries.push([`${now.colour} absent`, none]);
    return { of: (place) => (values[place] < 0 ? none : series[values[place] % SERIES]), entries };
  }

  function mark(x, y, kind, size, fill) {
    pen.strokeStyle = fill; pen.fillStyle = fill; pen.lineWidth = 1.6; pen.beginPath();
    if (kind === "wrong") { pen.moveTo(x - size, y - size); pen.lineTo(x + size, y + size); pen.moveTo(x - size, y + size); pen.lineTo(x + size, y - size); pen.stroke(); }
    else if (kind === "build") { pen.moveTo(x, y - size * 1.2); pen.lineTo(x + size * 1.1, y + size); pen.lineTo(x - size * 1.1, y + size); pen.closePath(); pen.fill(); }
    else if (kind === "died") { pen.moveTo(x, y - size * 1.3); pen.lineTo(x + size * 1.3, y); pen.lineTo(x, y + size * 1.3); pen.lineTo(x - size * 1.3, y); pen.closePath(); pen.fill(); }
    else if (kind === "duplicate") pen.fillRect(x - size, y - size, 2 * size, 2 * size);
    else { pen.arc(x, y, size, 0, 7); kind === "measured" ? pen.fill() : pen.stroke(); }
  }

  function draw() {
    if (!data) return;
    const now = state();
    filter(now);
    const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
    canvas.width = width * ratio; canvas.height = height * ratio;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    const x = axis(now.x), y = axis(now.y);
    const right = width - MARGIN.right - (HAS_LATENCY.has(x.name) ? EDGE : 0), bottom = height - MARGIN.bottom - (HAS_LATENCY.has(y.name) ? EDGE : 0);
    const atX = (found) => MARGIN.left + (right - MARGIN.left) * (found - x.low) / (x.high - x.low);
    const atY = (found) => bottom - (bottom - MARGIN.top) * (found - y.low) / (y.high - y.low);
    pen.font = "11.5px system-ui, sans-serif";
    pen.fillStyle = colour("edge");
    if (HAS_LATENCY.has(y.name)) pen.fillRect(MARGIN.left, bottom, right - MARGIN.left, EDGE);
    if (HAS_LATENCY.has(x.name)) pen.fillRect(right, MARGIN.top, EDGE, bottom - MARGIN.top);
    pen.strokeStyle = colour("grid"); pen.lineWidth = 1;
    const ink = colour("soft");
    for (const [tick, text] of ticks(y, 7)) {
      const at = Math.round(atY(tick)) + 0.5;
      pen.beginPath(); pen.moveTo(MARGIN.left, at); pen.lineTo(right, at); pen.stroke();
      pen.fillStyle = ink; pen.textAlign = "right"; pen.fillText(text, MARGIN.left - 8, at + 4);
    }
    for (const [tick, text] of ticks(x, Math.max(3, width / 110))) { pen.fillStyle = ink; pen.textAlign = "center"; pen.fillText(text, atX(tick), height - MARGIN.bottom + 16); }
    pen.textAlign = "center"; pen.fillText(x.label, (MARGIN.left + right) / 2, height - 8);
    pen.save(); pen.translate(14, (MARGIN.top + bottom) / 2); pen.rotate(-Math.PI / 2); pen.fillText(y.label, 0, 0); pen.restore();
    if (HAS_LATENCY.has(y.name)) { pen.textAlign = "right"; pen.fillText("no time", MARGIN.left - 8, bottom + EDGE / 2 + 4); }
    const line = (from, to) => { pen.save(); pen.strokeStyle = colour("ink"); pen.setLineDash([6, 4]); pen.beginPath(); pen.moveTo(...from); pen.lineTo(...to); pen.stroke(); pen.restore(); };
    if (y.name === "speedup" && y.low < 1 && y.high > 1) line([MARGIN.left, atY(1)], [right, atY(1)]);
    if (x.name === "speedup" && x.low < 1 && x.high > 1) line([atX(1), MARGIN.top], [atX(1), bottom]);
    const looks = look(now), size = shown.length > 3000 ? 2.2 : 3;
    const across = new Float32Array(shown.length), up = new Float32Array(shown.length);
    const order = shown.map((_, at) => at).sort((a, b) => Number(data.kinds[data.kind[shown[a]]].name === "measured") - Number(data.kinds[data.kind[shown[b]]].name === "measured"));
    pen.globalAlpha = shown.length > 3000 ? 0.65 : 0.85;
    for (const at of order) {
      const place = shown[at], number = data.quantities.number.values[place], vx = value(x.name, place), vy = value(y.name, place);
      across[at] = vx === null ? right + 5 + aside(number) * (EDGE - 10) : atX(vx);
      up[at] = vy === null ? bottom + 5 + aside(number) * (EDGE - 10) : atY(vy);
      mark(across[at], up[at], data.kinds[data.kind[place]].name, size, looks.of(place));
    }
    pen.globalAlpha = 1;
    drawn = { across, up, byX: shown.map((_, at) => at).sort((a, b) => across[a] - across[b] || up[a] - up[b]) };
    if (chosen >= 0 && shown.includes(chosen)) ring(shown.indexOf(chosen)); else chosen = -1;
    const legend = document.getElementById("scatter-legend");
    legend.replaceChildren(...looks.entries.map(([text, fill]) => {
      const item = document.createElement("li"), key = document.createElement("canvas");
      key.width = 12; key.height = 12;
      const tip = key.getContext("2d"); tip.fillStyle = fill; tip.fillRect(0, 0, 12, 12);
      item.append(key, text);
      return item;
    }));
    const rejected = shown.filter((place) => data.cause[place] >= 0).length;
    document.getElementById("scatter-note").textContent = `${shown.length.toLocaleString()} of ${data.kind.length.toLocaleString()} variants, ${rejected.toLocaleString()} of them rejected, on the edge. The line is ${data.baseline}. The table has the fastest.`;
  }

  function ring(at) {
    pen.strokeStyle = colour("ink"); pen.lineWidth = 2; pen.beginPath(); pen.arc(drawn.across[at], drawn.up[at], 8, 0, 7); pen.stroke();
  }

  function choose(at) {
    chosen = shown[at];
    draw();
    const number = data.quantities.number.values[chosen], speed = data.quantities.speedup.values[chosen], cause = data.cause[chosen];
    const link = document.createElement("a");
    link.href = box.dataset.trial + number;
    link.textContent = `Trial ${number}`;
    const parts = Object.entries(data.parameters).filter(([, each]) => each.values[chosen] >= 0).map(([name, each]) => `${name}=${each.levels[each.values[chosen]]}`);
    const what = speed !== null ? `${speed.toFixed(3)}\u00d7 ${data.baseline}` : cause >= 0 ? `rejected: ${data.causes[cause]}` : data.kinds[data.kind[chosen]].label;
    document.getElementById("point").replaceChildren(link, ` ${what} \u2014 ${parts.join(" ")}`);
  }

  function nearest(x, y) {
    let best = -1, least = NEAR * NEAR;
    for (let at = 0; at < shown.length; at += 1) {
      const far = (drawn.across[at] - x) ** 2 + (drawn.up[at] - y) ** 2;
      if (far < least) { least = far; best = at; }
    }
    return best;
  }

  canvas.addEventListener("pointermove", (event) => {
    if (!drawn) return;
    const edge = canvas.getBoundingClientRect(), at = nearest(event.clientX - edge.left, event.clientY - edge.top);
    if (at >= 0 && shown[at] !== chosen) choose(at);
  });
  const open = () => { if (chosen >= 0) location.href = box.dataset.trial + data.quantities.number.values[chosen]; };
  canvas.addEventListener("click", open);
  canvas.addEventListener("keydown", (event) => {
    if (!drawn || !shown.length) return;
    if (event.key === "Enter") { open(); return; }
    const step = { ArrowRight: 1, ArrowLeft: -1, PageDown: 50, PageUp: -50, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const here = chosen < 0 ? -1 : drawn.byX.indexOf(shown.indexOf(chosen));
    choose(drawn.byX[Math.max(0, Math.min(shown.length - 1, here + step))]);
  });

  // An address leads to what was chosen.
  for (const [name, chosenValue] of new URLSearchParams(location.search)) {
    for (const field of form.elements) {
      if (field.name !== name) continue;
      if (field.type !== "checkbox") { if ([...field.options].some((each) => each.value === chosenValue)) field.value = chosenValue; }
      else if (field.value === chosenValue) { field.checked = true; document.getElementById("filters").open = true; }
    }
  }

  let waiting = 0;
  const again = () => { cancelAnimationFrame(waiting); waiting = requestAnimationFrame(draw); };
  form.addEventListener("change", () => {
    const query = new URLSearchParams(new FormData(form));
    history.replaceState(null, "", `${location.pathname}?${query}`);
    again();
  });
  document.getElementById("clear").addEventListener("click", () => {
    for (const each of form.querySelectorAll("input[type=checkbox]")) each.checked = false;
    form.dispatchEvent(new Event("change"));
  });
  document.addEventListener("theme", again);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  new ResizeObserver(again).observe(canvas);

  fetch(box.dataset.source).then((answer) => (answer.ok ? answer.json() : Promise.reject(answer.status))).then((found) => {
    data = found;
    for (const each of Object.values(data.parameters)) each.values = [...each.values].map((sign) => sign.codePointAt(0) - 49);
    draw();
    box.dataset.ready = "yes";
  }).catch((why) => { document.getElementById("status").textContent = `The variants could not be read: ${why}`; });
})();
