// The page of a served model. Answers live in the history of this tab and travel with every request;
// the server keeps nothing of them unless they are sent to it.
"use strict";

const at = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
let card = null;
let map = null;
let answers = [];
let skipped = [];
let question = null;
let turn = 0;

function token() {
  const given = /^#token=(.+)$/.exec(location.hash);
  if (given) {
    sessionStorage.setItem("token", given[1]);
    history.replaceState(history.state, "", location.pathname);
  }
  return sessionStorage.getItem("token");
}

async function ask(path, body) {
  const headers = {};
  const secret = token();
  if (secret) headers.Authorization = "Bearer " + secret;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const reply = await fetch("api/" + path, {
    method: body === undefined ? "GET" : "POST",
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const content = await reply.json().catch(() => ({ error: "the server sent no answer" }));
  if (!reply.ok) throw new Error(content.error || "the server refused (" + reply.status + ")");
  return content;
}

function say(error) {
  at("error").textContent = error ? "This did not work: " + error.message : "";
  at("error").hidden = !error;
}

function element(name, kind, text) {
  const made = document.createElement(name);
  if (kind) made.className = kind;
  if (text !== undefined) made.textContent = text;
  return made;
}

function shape(name, attributes, kind) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (kind) made.setAttribute("class", kind);
  return made;
}

const percent = (share) => Math.round(100 * share) + "\u202f%";

// "1" and "True" are no words for a button.
function word(yes) {
  const given = yes ? card.yes : card.no;
  const plain = ["1", "0", "-1", "true", "false", "1.0", "0.0"];
  if (plain.includes(String(given).toLowerCase())) return yes ? "Yes" : "No";
  return given.charAt(0).toUpperCase() + given.slice(1);
}

function bar(line) {
  const made = element("div", "bar");
  const fill = element("i");
  const range = element("b");
  made.append(fill, range);
  move(made, line);
  return made;
}

function move(made, line) {
  made.firstChild.style.width = 100 * line.mean + "%";
  made.lastChild.style.left = 100 * line.low + "%";
  made.lastChild.style.width = 100 * Math.max(line.high - line.low, 0) + "%";
}

// Lines that stay keep their element, so that their bars move.
function bars(list, lines) {
  const before = new Map([...list.children].map((item) => [item.dataset.id, item]));
  const wanted = lines.map((line) => {
    const id = JSON.stringify(line.column);
    const value = { mean: line.probability, low: line.low, high: line.high };
    let item = before.get(id);
    if (!item) {
      item = element("li");
      item.dataset.id = id;
      const head = element("div", "head");
      const name = element("span", "name", String(line.column));
      name.title = String(line.column);
      head.append(name, element("span", "value"));
      item.append(head, bar(value));
    }
    item.querySelector(".value").textContent = percent(line.probability);
    move(item.querySelector(".bar"), value);
    return item;
  });
  list.replaceChildren(...wanted);
}

function drawMap(place) {
  const svg = at("map");
  // With the cloud, unless that is much wider than all others together.
  const reach = place.covariance.map((line, k) => Math.min(2.2 * Math.sqrt(line[k]), 3 * map.spread[k]));
  const all = map.at.concat([
    place.at.map((value, k) => value - reach[k]), place.at.map((value, k) => value + reach[k]),
  ]);
  const spans = [0, 1].map((axis) => {
    const values = all.map((point) => point[axis]);
    const low = Math.min(...values);
    const high = Math.max(...values);
    const room = 0.08 * (high - low) || 1;
    return [low - room, high + room];
  });
  const x = (value) => (400 * (value - spans[0][0])) / (spans[0][1] - spans[0][0]);
  const y = (value) => 300 - (300 * (value - spans[1][0])) / (spans[1][1] - spans[1][0]);
  const parts = [
    shape("line", { x1: x(0), x2: x(0), y1: 0, y2: 300 }, "axis"),
    shape("line", { x1: 0, x2: 400, y1: y(0), y2: y(0) }, "axis"),
  ];
  map.at.forEach((point, k) => {
    const dot = shape("circle", { cx: x(point[0]), cy: y(point[1]), r: 3 }, "dot");
    const name = shape("title", {});
    name.textContent = String(map.ids[k]);
    dot.append(name);
    parts.push(dot);
  });
  parts.push(cloud(place, x, y));
  const [cx, cy] = [x(place.at[0]), y(place.at[1])];
  const old = svg.querySelector(".you");
  const you = old || shape("circle", { r: 6 }, "you");
  you.setAttribute("cx", cx);
  you.setAttribute("cy", cy);
  const label = shape("text", { x: cx > 350 ? cx - 36 : cx + 9, y: cy + 4 });
  label.textContent = "you";
  svg.replaceChildren(...parts, you, label);
}

// Where nine in ten lie: an ellipse of a normal distribution with this covariance.
function cloud(place, x, y) {
  const [[a, b], [, d]] = place.covariance;
  const half = (a + d) / 2;
  const root = Math.sqrt(Math.max(((a - d) / 2) ** 2 + b * b, 0));
  const angle = 0.5 * Math.atan2(2 * b, a - d);
  const size = Math.sqrt(2 * Math.log(10));
  const [long, short] = [half + root, half - root].map((v) => size * Math.sqrt(Math.max(v, 0)));
  const points = [];
  for (let k = 0; k < 48; k += 1) {
    const t = (2 * Math.PI * k) / 48;
    const [u, v] = [long * Math.cos(t), short * Math.sin(t)];
    const px = place.at[0] + u * Math.cos(angle) - v * Math.sin(angle);
    const py = place.at[1] + u * Math.sin(angle) + v * Math.cos(angle);
    points.push(x(px).toFixed(1) + "," + y(py).toFixed(1));
  }
  return shape("polygon", { points: points.join(" ") }, "cloud");
}

function mapWords() {
  const names = (list) => list.map(String).join(", ");
  const side = (axis, end, where) => where + " to " + names(map.axes[axis][end]);
  const shown = map.at.length < map.of ? map.at.length + " of " + map.of : String(map.of);
  at("map-words").textContent =
    "Each dot is one of the " + card.row_name + "s the model knows (" + shown + "); near means similar " +
    "answers. The cloud is where the model believes you to be, at " + percent(0.9) + ". Compared with their other " +
    "answers, those " +
    [side(0, "high", "on the right say yes more often"), side(0, "low", "those on the left"),
      ...(map.axes.length > 1 ? [side(1, "high", "those at the top"), side(1, "low", "those at the bottom")]
        : [])].join(", ") + ".";
}

function answerLine(column, yes) {
  const item = element("li");
  item.append(element("span", "name", String(column)));
  if (yes !== undefined) item.append(element("span", "tag " + (yes ? "yes" : "no"), word(yes)));
  return item;
}

function drawGiven() {
  const list = answers.map(([column, yes], place) => {
    const item = answerLine(column, yes);
    const change = element("button", "", "Change");
    change.type = "button";
    change.setAttribute("aria-label", "Change the answer to " + column);
    change.addEventListener("click", () => {
      const next = answers.slice();
      next[place] = [column, !yes];
      keep(next);
    });
    item.append(change);
    return item;
  });
  at("given").replaceChildren(...list.reverse());
  at("count").textContent = answers.length ? "(" + answers.length + ")" : "";
  at("undo").disabled = at("restart").disabled = answers.length === 0;
  at("send").disabled = answers.length === 0;
}

function drawQuestion(found) {
  question = found || null;
  at("question").textContent = question ? String(question.column) : "There is nothing left to ask.";
  at("why").textContent = question ? "Why this one: " + question.why : "";
  for (const id of ["yes", "no", "skip"]) at(id).disabled = question === null;
}

async function refresh() {
  turn += 1;
  const mine = turn;
  drawGiven();
  try {
    // Skipped questions are asked again only when nothing else is left.
    const questions = Math.min(skipped.length + 1, 20);
    const known = await ask("fold-in", { answers, n: 6, questions });
    if (mine !== turn) return; // a later answer has overtaken this one
    drawQuestion(known.questions.find((one) => !skipped.includes(one.column)) || known.questions[0]);
    const share = known.share;
    at("share-words").textContent =
      percent(share.mean) + " yes, between " + percent(share.low) + " and " + percent(share.high);
    if (at("share").firstChild) move(at("share").firstChild, share);
    else at("share").append(bar(share));
    at("share-of").textContent =
      "Over all " + card.columns + " " + card.column_name + "s. The interval holds with probability " +
      percent(share.level) + " if you are one of a population like the " + card.rows + " " +
      card.row_name + "s that the model knows, and answer as they did.";
    bars(at("surest"), known.surest);
    bars(at("unsure"), known.least_sure);
    drawMap(known.place);
    say(null);
    document.body.dataset.ready = String(answers.length);
  } catch (error) {
    if (mine === turn) await explain(error);
  }
}

// A model may have been replaced by one about other things while this page was open.
async function explain(error) {
  const now = await ask("model").catch(() => null);
  if (now && now.version !== card.version && answers.length) {
    history.replaceState(null, "");
    say(new Error("the model has changed, and your answers are not about it; reload the page to start again"));
    return;
  }
  say(error);
}

function keep(next) {
  answers = next;
  history.pushState({ answers, skipped }, "");
  refresh();
}

function give(column, yes) {
  keep(answers.filter(([other]) => other !== column).concat([[column, yes]]));
}

function skip() {
  if (!question) return;
  skipped = skipped.concat([question.column]);
  keep(answers);
}

async function search() {
  const text = at("search").value.trim();
  if (!text) return at("found").replaceChildren();
  try {
    const found = await ask("columns?n=8&search=" + encodeURIComponent(text));
    if (text !== at("search").value.trim()) return undefined;
    const lines = found.ids.map((column) => {
      const item = answerLine(column);
      for (const yes of [true, false]) {
        const button = element("button", yes ? "yes" : "no", word(yes));
        button.type = "button";
        button.setAttribute("aria-label", word(yes) + " to " + column);
        button.addEventListener("click", () => {
          at("search").value = "";
          at("found").replaceChildren();
          give(column, yes);
        });
        item.append(button);
      }
      return item;
    });
    at("found").replaceChildren(...(lines.length ? lines : [element("li", "note", "Nothing found.")]));
  } catch (error) {
    say(error);
  }
  return undefined;
}

// One name for this tab, and only what has not been sent yet; a batch that may have failed keeps its key.
async function send() {
  const kept = JSON.parse(sessionStorage.getItem("sent") || "null") || {
    row: card.row_ids === "number" ? Math.floor(Math.random() * 2 ** 52) : "page-" + crypto.randomUUID(),
    done: {},
    batch: null,
  };
  const fresh = answers.filter(([column, yes]) => kept.done[JSON.stringify(column)] !== yes);
  if (!kept.batch || JSON.stringify(kept.batch.answers) !== JSON.stringify(fresh)) {
    kept.batch = { key: crypto.randomUUID(), answers: fresh };
  }
  sessionStorage.setItem("sent", JSON.stringify(kept));
  try {
    if (fresh.length) await ask("answers", { key: kept.batch.key, row: kept.row, answers: fresh });
    for (const [column, yes] of fresh) kept.done[JSON.stringify(column)] = yes;
    kept.batch = null;
    sessionStorage.setItem("sent", JSON.stringify(kept));
    const count = fresh.length === 1 ? "1 answer" : fresh.length + " answers";
    at("sent").textContent = "Sent: " + count + ", under the name " + kept.row + ". Thank you.";
    at("send").disabled = true;
  } catch (error) {
    say(error);
  }
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target === at("search")) return;
  const key = event.key.toLowerCase();
  const button = { y: "yes", n: "no", s: "skip", u: "undo" }[key];
  if (button && !at(button).disabled) {
    event.preventDefault();
    at(button).click();
  }
}

async function begin() {
  token();
  try {
    card = await ask("model");
    at("title").textContent = card.name.replace(/\.onebit$/, "");
    document.title = at("title").textContent + " · onebit";
    at("kind").textContent = card.column_name.charAt(0).toUpperCase() + card.column_name.slice(1);
    at("yes").textContent = word(true);
    at("no").textContent = word(false);
    at("search").placeholder = "Search the " + card.columns + " " + card.column_name + "s";
    at("send").hidden = !card.stores_answers;
    const updated = card.updates.times ? ", " + card.updates.answers + " more since" : "";
    at("card").textContent =
      card.kind + (card.sampled ? ", sampled" : "") + ": " + card.rows + " " + card.row_name + "s, " +
      card.columns + " " + card.column_name + "s, " + card.answers + " answers" + updated +
      ". onebit " + card.onebit + ".";
    if (card.certificate) {
      at("certificate").textContent =
        card.certificate.sentence + " Counted: " + card.certificate.observed + ". That does not speak " +
        "of what is said of you here.";
      at("assumes").replaceChildren(...card.certificate.assumes.map((one) => element("li", "note", one)));
      at("assumes-box").hidden = false;
    } else {
      at("certificate").textContent = "Nothing: no answers were held out when this model was fitted.";
    }
    if (card.cannot_ask) throw new Error(card.cannot_ask);
    map = await ask("map");
    map.spread = [0, 1].map((k) => Math.max(...map.at.map((point) => Math.abs(point[k]))) || 1);
    mapWords();
    restore(history.state);
  } catch (error) {
    say(error);
  }
}

function restore(state) {
  answers = state && Array.isArray(state.answers) ? state.answers : [];
  skipped = state && Array.isArray(state.skipped) ? state.skipped : [];
  refresh();
}

at("yes").addEventListener("click", () => question && give(question.column, true));
at("no").addEventListener("click", () => question && give(question.column, false));
at("skip").addEventListener("click", skip);
at("undo").addEventListener("click", () => keep(answers.slice(0, -1)));
// Whoever starts again is somebody else.
at("restart").addEventListener("click", () => { skipped = []; sessionStorage.removeItem("sent"); keep([]); });
at("send").addEventListener("click", send);
at("search").addEventListener("input", search);
document.addEventListener("keydown", keys);
window.addEventListener("popstate", (event) => card && restore(event.state));
begin();
