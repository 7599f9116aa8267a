"use strict";
(function () {
  const data = JSON.parse(document.getElementById("points").textContent);
  const box = document.getElementById("map"), tip = document.getElementById("tip");
  const find = document.getElementById("find"), hits = document.getElementById("hits");
  const space = "http://www.w3.org/2000/svg";
  const narrow = window.matchMedia("(max-width: 720px)");
  const ruled = data.sides[0].at.length === 1;
  const line = 16;
  // Whole letters and whole emoji: a cut between two halves of one would show neither.
  const signs = window.Intl && Intl.Segmenter
    ? (s => text => Array.from(s.segment(text), part => part.segment))(new Intl.Segmenter())
    : text => Array.from(text);
  let marks = [], label = () => {};

  function make(name, attributes, text) {
    const element = document.createElementNS(space, name);
    for (const key in attributes) element.setAttribute(key, attributes[key]);
    if (text !== undefined) element.textContent = text;
    return element;
  }
  function signed(value, digits) {
    return (value > 0 ? "+" : "") + value.toFixed(digits).replace("-", "\u2212");
  }
  function words(side, k) {
    const lines = [side.ids[k], side.name];
    if (side.answers[k]) {
      const share = Math.round(100 * side.yes[k] / side.answers[k]);
      lines.push(side.answers[k].toLocaleString("en") + " answers, " + share + " % " + data.yes);
    }
    if (side.effect) lines.push("effect " + signed(side.effect[k], 2));
    return lines.join("\n");
  }
  // Write a name where there is so much room; the whole of it is the label's title. A long one is cut in
  // its middle: long names often begin alike.
  function write(svg, name, room, attributes) {
    const text = make("text", Object.assign({ class: "label" }, attributes), name);
    svg.append(text);
    const parts = signs(name);
    let kept = parts.length;
    while (kept > 1 && text.getComputedTextLength() > room) {
      kept = Math.min(kept - 1, Math.floor(kept * room / text.getComputedTextLength()));
      const head = Math.max(Math.ceil(0.6 * kept), 1), tail = Math.max(kept - head, 0);
      text.textContent = parts.slice(0, head).join("").trimEnd() + "…"
        + parts.slice(parts.length - tail).join("").trimStart();
    }
    const long = text.getComputedTextLength();
    text.append(make("title", {}, name));
    return { text, long };
  }
  function mark(svg, which, k, x, y, r) {
    const d = 1.25 * r, shape = which
      ? make("path", { class: "point", d: `M${x} ${y - d}l${d} ${d}l${-d} ${d}l${-d} ${-d}z` })
      : make("circle", { cx: x, cy: y, r: r });
    svg.append(shape);
    marks.push({ mark: shape, side: data.sides[which], which, k, x, y });
  }
  function shown(m) { return m.mark.style.display !== "none"; }
  function range(axis) {
    const values = data.sides.flatMap(side => side.at[axis]).concat(0);
    return [Math.min(...values), Math.max(...values)];
  }

  // Two factors: points in a plane, the names of those farthest out where there is room.
  function scatter(svg, width, height) {
    const edge = 34, [x0, x1] = range(0), [y0, y1] = range(1);
    const px = v => edge + (width - 2 * edge) * (v - x0) / ((x1 - x0) || 1);
    const py = v => height - edge - (height - 2 * edge) * (v - y0) / ((y1 - y0) || 1);
    svg.append(
      make("line", { x1: px(0), x2: px(0), y1: 8, y2: height - 8 }),
      make("line", { x1: 8, x2: width - 8, y1: py(0), y2: py(0) }),
    );
    // The larger side first, so that it does not cover the smaller one.
    const larger = data.sides[0].ids.length >= data.sides[1].ids.length ? 0 : 1;
    [larger, 1 - larger].forEach(which => {
      const { ids, at } = data.sides[which], r = ids.length > 400 ? 3.2 : 4.5;
      for (let k = ids.length - 1; k >= 0; k--) mark(svg, which, k, px(at[0][k]), py(at[1][k]), r);
    });
    svg.append(
      make("text", { x: width - 10, y: height - 10, "text-anchor": "end" }, "first factor →"),
      make("text", { x: 10, y: 20 }, "↑ second factor"),
    );
    const away = m => Math.hypot(m.x - px(0), m.y - py(0));
    const [few, many] = [1 - larger, larger].map(
      which => marks.filter(m => m.which === which).sort((a, b) => away(b) - away(a)));
    const far = few.flatMap((m, k) => k < many.length ? [m, many[k]] : [m]).concat(many.slice(few.length));
    const meets = (a, b) => a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;
    const room = narrow.matches ? 120 : 190, most = narrow.matches ? 10 : 26;
    return function (chosen) {
      const labels = [], taken = [];
      for (const m of (chosen || far).slice(0, 300)) {
        if (labels.length >= most) break;
        if (!shown(m)) continue;
        const made = write(svg, m.side.ids[m.k], room, { x: 0, y: 0 });
        const w = made.long, places = [
          { x: m.x + 8, y: m.y - 8 }, { x: m.x - 8 - w, y: m.y - 8 },
          { x: m.x - w / 2, y: m.y - 8 - line }, { x: m.x - w / 2, y: m.y + 8 },
        ].map(p => Object.assign(p, { w, h: line })).filter(
          p => p.x >= 2 && p.x + w <= width - 2 && p.y >= 2 && p.y + line <= height - 2
            && !taken.some(t => meets(p, t)));
        const over = p => marks.filter(o => o !== m && shown(o) && meets(p, { x: o.x - 3, y: o.y - 3, w: 6, h: 6 })).length;
        const best = places.map(p => [over(p), p]).sort((a, b) => a[0] - b[0])[0];
        if (!best || (best[0] > 0 && !chosen)) { made.text.remove(); continue; }
        made.text.setAttribute("x", best[1].x);
        made.text.setAttribute("y", best[1].y + 12);
        taken.push(best[1]);
        labels.push(made.text);
      }
      return labels;
    };
  }

  // One factor: a ruler, one side to its left and the other to its right, the names in columns.
  function ruler(svg, width, height) {
    const gutter = 24, band = narrow.matches ? 46 : 130, edge = 30, middle = width / 2;
    const [low, high] = range(0), py = v => height - edge - (height - 2 * edge) * (v - low) / ((high - low) || 1);
    const rough = (high - low || 1) / 8, power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find(times => times * power >= rough);
    const digits = Math.max(0, -Math.floor(Math.log10(step)));
    for (let n = Math.ceil(low / step); n * step <= high; n++) {
      svg.append(
        make("line", { x1: middle - gutter, x2: middle + gutter, y1: py(n * step), y2: py(n * step) }),
        make("text", { class: "tick", x: middle, y: py(n * step) + 4 }, n ? signed(n * step, digits) : "0"),
      );
    }
    const far = [0, 1].map(which => {
      const { ids, at, name } = data.sides[which], way = which ? 1 : -1, r = ids.length > 400 ? 3.2 : 4.5;
      svg.append(
        make("line", { x1: middle + way * gutter, x2: middle + way * gutter, y1: 24, y2: height - 8 }),
        make("text", { x: middle + way * gutter, y: 16, "text-anchor": which ? "start" : "end" }, name),
      );
      const stacks = new Map(), stack = k => Math.round(py(at[0][k]) / (2 * r + 1));
      for (let k = 0; k < ids.length; k++) stacks.set(stack(k), (stacks.get(stack(k)) || 0) + 1);
      const gap = Math.min(2 * r + 1, band / Math.max(...stacks.values(), 1)), used = new Map();
      for (let k = 0; k < ids.length; k++) {
        const before = used.get(stack(k)) || 0;
        used.set(stack(k), before + 1);
        mark(svg, which, k, middle + way * (gutter + 8 + gap * before), py(at[0][k]), r);
      }
      return marks.filter(m => m.which === which).sort((a, b) => a.y - b.y);
    });
    return function (chosen) {
      const labels = [], slots = Math.floor((height - 2 * edge) / line) + 1;
      [0, 1].forEach(which => {
        const way = which ? 1 : -1, begin = middle + way * (gutter + band + 30);
        let named = (chosen ? chosen.filter(m => m.which === which) : far[which]).filter(shown);
        named.sort((a, b) => a.y - b.y);
        // Of every stretch as many as have room there, from its first to its last: no label strays far.
        if (named.length > slots) {
          const stretches = new Map(), stretch = m => Math.floor((m.y - edge) / (4 * line));
          for (const m of named) stretches.set(stretch(m), (stretches.get(stretch(m)) || []).concat(m));
          named = [...stretches.values()].flatMap(all => all.length <= 4 ? all
            : [0, 1, 2, 3].map(n => all[Math.round(n * (all.length - 1) / 3)]));
        }
        const ys = named.map(m => m.y);
        for (let k = 1; k < ys.length; k++) ys[k] = Math.max(ys[k], ys[k - 1] + line);
        let limit = height - edge + 8;
        for (let k = ys.length - 1; k >= 0; k--) { ys[k] = Math.min(ys[k], limit); limit = ys[k] - line; }
        named.forEach((m, k) => {
          const leader = make("line", { class: "leader", x1: m.x + way * 6, y1: m.y, x2: begin - way * 4, y2: ys[k] });
          svg.append(leader);
          const room = (which ? width - begin : begin) - 6;
          const made = write(svg, m.side.ids[m.k], room, { x: begin, y: ys[k] + 4, "text-anchor": which ? "start" : "end" });
          labels.push(leader, made.text);
        });
      });
      return labels;
    };
  }

  function draw() {
    const longest = Math.max(data.sides[0].ids.length, data.sides[1].ids.length);
    const width = narrow.matches ? 420 : 960;
    const height = ruled ? Math.max(260, Math.min(660, line * longest + 80)) : narrow.matches ? 525 : 660;
    const old = box.querySelector("svg");
    if (old) old.remove();
    const title = (ruled ? "ruler of " : "map of ") + data.sides[0].name + " and " + data.sides[1].name;
    const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", class: ruled ? "ruler" : "scatter", "aria-label": title });
    box.append(svg);
    marks = [];
    const place = (ruled ? ruler : scatter)(svg, width, height);
    let labels = [];
    label = chosen => {
      labels.forEach(l => l.remove());
      labels = place(chosen);
    };
    svg.addEventListener("pointermove", near);
    svg.addEventListener("pointerdown", near);
    svg.addEventListener("pointerleave", () => { tip.style.display = "none"; });
    search();
    function near(event) {
      const frame = svg.getBoundingClientRect(), scale = width / frame.width;
      const x = (event.clientX - frame.left) * scale, y = (event.clientY - frame.top) * scale;
      let best = null, least = 18 * 18 * Math.max(scale, 1);
      for (const m of marks) {
        const d = (m.x - x) ** 2 + (m.y - y) ** 2;
        if (d < least && shown(m)) { best = m; least = d; }
      }
      if (!best) { tip.style.display = "none"; return; }
      tip.textContent = words(best.side, best.k);
      tip.style.display = "block";
      const left = best.x / scale, top = best.y / scale;
      tip.style.left = Math.max(0, Math.min(left + 12, frame.width - tip.offsetWidth - 4)) + "px";
      tip.style.top = (top + 14 + tip.offsetHeight > frame.height ? top - tip.offsetHeight - 10 : top + 14) + "px";
    }
  }
  function search() {
    const text = find.value.trim().toLowerCase(), found = [];
    for (const m of marks) {
      m.mark.style.display = document.getElementById("show" + m.which).checked ? "" : "none";
      const hit = text && m.side.ids[m.k].toLowerCase().includes(text);
      m.mark.classList.toggle("found", Boolean(hit));
      m.mark.classList.toggle("faint", Boolean(text) && !hit);
      if (hit) found.push(m);
    }
    hits.textContent = text ? found.length.toLocaleString("en") + " found" : "";
    label(text ? found : null);
  }
  find.addEventListener("input", search);
  [0, 1].forEach(which => document.getElementById("show" + which).addEventListener("change", search));
  narrow.addEventListener("change", draw);
  draw();
})();
