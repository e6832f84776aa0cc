// The page of the scheduler: requests overview.json every two seconds while the page is visible,
// and shows it. All text is inserted as text, never as HTML.
"use strict";

const EVERY_MS = 2000;
const LONGEST_MS = 30000;  // between two attempts, while the scheduler is unreachable
const REPLY_MS = 10000;
const TYPING_MS = 200;
const LARGE = 2000;  // nodes; with more the cells are smaller

const at = (id) => document.getElementById(id);

function set(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function make(name, className, text) {
  const element = document.createElement(name);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

const count = (number) => number.toLocaleString("en");
const nodesText = (number) => `${count(number)} ${number === 1 ? "node" : "nodes"}`;
const nodeHours = (seconds) =>
    `${(seconds / 3600).toLocaleString("en", {maximumSignificantDigits: 3})} node-hours`;
const percent = (part, whole) => whole === 0 ? "–" : `${Math.round(100 * part / whole)}\u00a0%`;
const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB");
const clockShort = (seconds) => clock(seconds).slice(0, 5);

// "42s", "5m", "2h10m", "3d4h"
function duration(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m`;
  const two = (a, b, units) => `${a}${units[0]}${b > 0 ? `${b}${units[1]}` : ""}`;
  if (s < 86400) return two(Math.floor(s / 3600), Math.floor(s % 3600 / 60), "hm");
  return two(Math.floor(s / 86400), Math.floor(s % 86400 / 3600), "dh");
}

// Tasks. -----------------------------------------------------------------------------------------

const COLUMNS = {
  task: "Task", title: "Name", user: "User", priority: "Prio", group: "Group", nodes: "Nodes",
  state: "State", since: "Since", ran: "Ran", why: "Why",
};
const TABLES = {
  active: ["task", "title", "user", "priority", "group", "nodes", "state", "since", "why"],
  queue: ["task", "title", "user", "priority", "group", "nodes", "state", "since", "why"],
  finished: ["task", "title", "user", "group", "nodes", "state", "since", "ran", "why"],
};
const NUMBERS = ["task", "priority", "nodes", "since", "ran"];
const LABELS = {user: "of", priority: "prio", group: "group", nodes: "nodes", since: "for",
                ran: "ran"};
const isNumber = (column) => NUMBERS.includes(column) ? " number" : "";

function makeTables() {
  for (const [name, columns] of Object.entries(TABLES)) {
    for (const column of columns) {
      const head = make("th", column + isNumber(column),
                        name === "finished" && column === "since" ? "Ago" : COLUMNS[column]);
      head.scope = "col";
      head.setAttribute("role", "columnheader");
      at(name).tHead.rows[0].append(head);
    }
  }
}

function makeRow(name, id) {
  const row = make("tr");
  row.dataset.task = id;
  row.setAttribute("role", "row");
  for (const column of TABLES[name]) {
    const cell = make("td", column + isNumber(column));
    cell.setAttribute("role", "cell");
    if (LABELS[column]) cell.dataset.label = LABELS[column];
    if (name === "finished" && column === "since") cell.dataset.label = "ended, ago";
    // Names may be in any script and direction: isolate each in its cell.
    const text = make(column === "task" ? "button" : "bdi");
    if (column === "task") {
      text.type = "button";
      text.setAttribute("aria-pressed", "false");
      text.title = "Show its nodes";
    }
    cell.append(text);
    row.append(cell);
  }
  return row;
}

function fillRow(row, columns, task, now) {
  columns.forEach((column, i) => {
    const text = row.cells[i].firstChild;
    let value = task[column];
    if (column === "since") value = task.since_s === null ? "" : duration(now - task.since_s);
    if (column === "ran") value = task.ran_s === null ? "" : duration(task.ran_s);
    set(text, String(value));
    if (column === "title" || column === "why") text.title = value;
    if (column === "state") text.className = `is-${task.state}`;
    if (column === "task") text.setAttribute("aria-pressed", String(task.task === marked));
  });
}

function fillTable(name, part, now, none) {
  const body = at(name).tBodies[0];
  const old = new Map([...body.rows].map((row) => [row.dataset.task, row]));
  part.rows.forEach((task, i) => {
    const key = String(task.task);
    const row = old.get(key) || makeRow(name, key);
    old.delete(key);
    fillRow(row, TABLES[name], task, now);
    if (body.rows[i] !== row) body.insertBefore(row, body.rows[i] || null);
  });
  for (const row of old.values()) row.remove();
  at(name).hidden = part.rows.length === 0;
  at(`${name}-none`).hidden = part.rows.length > 0;
  set(at(`${name}-none`), none);
}

function showTasks(data) {
  const found = find.value.trim() !== "";
  const none = (otherwise) => found ? "No task matches all of these words." : otherwise;
  fillTable("active", data.active, data.now_s, none("No task is running."));
  fillTable("queue", data.queue, data.now_s,
            none("No task waits. Submit one: ff schedule submit --nodes N -- COMMAND"));
  fillTable("finished", data.finished, data.now_s, none("No task has finished yet."));
  for (const name of ["active", "queue"]) {
    const part = data[name];
    set(at(`${name}-title`).firstElementChild, count(part.rows.length + part.more));
    at(`${name}-more`).hidden = part.more === 0;
    set(at(`${name}-more`), `and ${count(part.more)} more; use Find to narrow the list`);
  }
  const lately = data.finished.rows.length;
  set(at("finished-title").firstElementChild, lately === 0 ? "" : `the newest ${count(lately)}`);
  at("finished-more").hidden = lately === 0;
}

// Figures, and the use of the last day. -----------------------------------------------------------

// Node-seconds: busy, and in service.
const wholeDay = (use) =>
    use.spans.reduce(([busy, all], [, b, a]) => [busy + b, all + a], [0, 0]);

function showFigures(data) {
  const {free, busy} = data.nodes;
  const all = Object.values(data.nodes).reduce((sum, one) => sum + one, 0);
  const {queued, preparing, running, stopping, suspended} = data.tasks;
  const figure = (id, text, small) => {
    const now = make("small", "", small);
    if (at(id).textContent !== text + small) at(id).replaceChildren(text, ...(small ? [now] : []));
  };
  figure("busy-now", percent(busy, busy + free),
         busy + free === 0 ? "" : `${count(busy)} of ${count(busy + free)}`);
  const day = wholeDay(data.use);
  figure("busy-day", percent(...day), day[1] === 0 ? "" : `of ${nodeHours(day[1])}`);
  figure("in-service", count(busy + free), `of ${nodesText(all)}`);
  figure("active-count", count(preparing + running + stopping),
         [[preparing, "preparing"], [stopping, "stopping"]].filter(([n]) => n > 0)
             .map(([n, word]) => `${count(n)} ${word}`).join(", "));
  figure("waiting-count", count(queued), suspended > 0 ? `${count(suspended)} suspended` : "");
  set(at("nodes-count"), all === 0 ? "" : count(all));
  document.title = `${count(running)} running, ${count(queued)} waiting – ff schedule`;
}

const SVG = "http://www.w3.org/2000/svg";
let drawn = "";

// A bar for each span; none where no scheduler ran, or no node was in service.
function showUse(data) {
  const {spans, span_s: spanS, day_s: dayS} = data.use;
  const end = (Math.floor(data.now_s / spanS) + 1) * spanS;
  const begin = end - dayS;
  const key = JSON.stringify([end, spans]);
  if (key === drawn) return;
  drawn = key;
  const shapes = [];
  const rect = (className, x, y, height, title) => {
    const shape = document.createElementNS(SVG, "rect");
    const width = 1440 * spanS / dayS - (className === "bar" ? 1 : 0);
    const values = {class: className, x, y, width, height};
    for (const [name, value] of Object.entries(values)) shape.setAttribute(name, value);
    const text = document.createElementNS(SVG, "title");
    text.textContent = title;
    shape.append(text);
    shapes.push(shape);
  };
  let known = 0;
  for (const [from, busy, inService] of spans) {
    if (from < begin || inService === 0) continue;
    known++;
    const share = busy / inService;
    const x = 1440 * (from - begin) / dayS;
    const title =
        `${clockShort(from)}–${clockShort(from + spanS)}: ${percent(busy, inService)} busy`;
    rect("known", x, 0, 100, title);
    rect("bar", x, 100 - 100 * share, 100 * share, title);
  }
  const half = document.createElementNS(SVG, "line");
  const ends = {class: "half", x1: 0, x2: 1440, y1: 50, y2: 50};
  for (const [name, value] of Object.entries(ends)) half.setAttribute(name, value);
  at("chart").replaceChildren(...shapes, half);
  at("chart").setAttribute("aria-label", known === 0 ? "No data yet" :
      `Over the last 24 hours ${percent(...wholeDay(data.use))} of the nodes in service were busy`);
  const hours = [0, 6, 12, 18].map((hour) => make("span", "", clockShort(begin + hour * 3600)));
  at("hours").replaceChildren(...hours, make("span", "", "now"));
  set(at("chart-note"), known === 0 ?
      "No data yet: nodes are counted while the scheduler runs." :
      known < dayS / spanS ? "Grey: no scheduler ran then, or no node was in service." : "");
}

// Nodes. -----------------------------------------------------------------------------------------

let map = {map: -1, states: [], zones: []};
let nodes = [];      // [name, group, marks, why drained], in map order, with places
let cells = [];      // elements, in the same order
let states = "";     // as shown
let holds = [];
let chosen = -1;     // a node
let marked = 0;      // a task
let tasks = new Map();

function makeMap() {
  const name = chosen < 0 ? "" : nodes[chosen].name;
  nodes = [];
  cells = [];
  states = "";
  const zones = map.zones.map((zone) => {
    const part = make("div", "zone");
    const head = make("h3", "");
    head.append(make("bdi", "", zone.zone ? `zone ${zone.zone}` : "no zone"), make("small"));
    const leaves = make("div", "leaves");
    zone.head = head.lastChild;
    zone.first = nodes.length;
    for (const leaf of zone.leaves) {
      const block = make("div", "leaf");
      leaf.head = make("b");
      leaf.first = nodes.length;
      const grid = make("div", "cells");
      for (const [name, group, marks, why] of leaf.nodes) {
        const cell = make("i", "cell");
        cell.id = `n${nodes.length}`;
        cell.setAttribute("role", "option");
        cells.push(cell);
        nodes.push({name, group, marks, why, zone: zone.zone, leaf: leaf.leaf});
        grid.append(cell);
      }
      leaf.end = nodes.length;
      block.append(leaf.head, grid);
      leaves.append(block);
    }
    zone.end = nodes.length;
    part.append(head, leaves);
    return part;
  });
  at("map").replaceChildren(...zones);
  at("map").classList.toggle("large", nodes.length > LARGE);
  at("nodes-more").hidden = map.more === 0;
  set(at("nodes-more"), `and ${nodesText(map.more)} more: ff schedule nodes lists all`);
  chosen = nodes.findIndex((node) => node.name === name);
}

function className(i) {
  return `cell s${states[i]}${marked !== 0 && holds[i] === marked ? " hit" : ""}` +
         `${i === chosen ? " chosen" : ""}`;
}

function drawCells() {
  for (let i = 0; i < cells.length; i++) {
    const now = className(i);
    if (cells[i].className !== now) cells[i].className = now;
  }
}

// "12 of 16 busy, 1 drained"
function countText(first, end) {
  const counts = new Array(map.states.length).fill(0);
  for (let i = first; i < end; i++) counts[states.charCodeAt(i) - 48]++;
  const [, busy, , ...out] = counts;
  let text = `${busy}/${end - first} busy`;
  out.forEach((number, i) => {
    if (number > 0) text += `, ${number} ${map.states[i + 3]}`;
  });
  return text;
}

function showNodes(data) {
  const all = Object.values(data.nodes).reduce((sum, one) => sum + one, 0);
  at("no-nodes").hidden = all > 0;
  at("with-nodes").hidden = all === 0;
  set(at("agent-at"), `${location.hostname}:4500`);
  if (at("legend").childElementCount === 0) {
    for (const [i, name] of map.states.entries()) {
      const item = make("li");
      item.append(make("i", `cell s${i}`), make("span"));
      item.dataset.state = name;
      at("legend").append(item);
    }
  }
  for (const item of at("legend").children) {
    const number = data.nodes[item.dataset.state];
    set(item.lastChild, `${item.dataset.state} ${count(number)}`);
    item.classList.toggle("none", number === 0);
  }
  const changed = states !== data.states;
  states = data.states;
  holds = data.holds;
  drawCells();
  if (changed) {
    for (const zone of map.zones) {
      set(zone.head, `${countText(zone.first, zone.end)}`);
      for (const leaf of zone.leaves) {
        const text = `${leaf.leaf ? leaf.leaf : "no leaf"} · ${countText(leaf.first, leaf.end)}`;
        set(leaf.head, text);
        leaf.head.title = text;
      }
    }
  }
  showDetail();
}

function showDetail() {
  if (chosen >= 0) {
    const node = nodes[chosen];
    const state = map.states[states.charCodeAt(chosen) - 48];
    const id = holds[chosen];
    const words = [node.name, node.zone && `zone ${node.zone}`, node.leaf && `leaf ${node.leaf}`,
                   `group ${node.group}`, node.marks, node.why ? `${state}: ${node.why}` : state];
    if (id !== 0) {
      const task = tasks.get(id);
      words.push(`task ${id}${task ? ` (${task.title}, of ${task.user})` : ""}`);
    }
    set(at("detail"), words.filter((word) => word).join(" · "));
    cells[chosen].setAttribute("aria-label", at("detail").textContent);
  } else if (marked !== 0) {
    const on = nodes.filter((_, i) => holds[i] === marked).map((node) => node.name);
    const more = on.length > 8 ? ` and ${count(on.length - 8)} more` : "";
    const names = on.slice(0, 8).join(" ") + more;
    set(at("detail"), on.length === 0 ? `Task ${marked} has no nodes.` :
        `Task ${marked} has ${nodesText(on.length)}: ${names}`);
  } else {
    set(at("detail"), "Choose a node or the number of a task.");
  }
}

function choose(i) {
  if (chosen >= 0) cells[chosen].removeAttribute("aria-selected");
  chosen = i;
  if (i >= 0) {
    cells[i].setAttribute("aria-selected", "true");
    cells[i].scrollIntoView({block: "nearest"});
    at("map").setAttribute("aria-activedescendant", cells[i].id);
  } else {
    at("map").removeAttribute("aria-activedescendant");
  }
  drawCells();
  showDetail();
}

function mark(id) {
  marked = marked === id ? 0 : id;
  for (const button of document.querySelectorAll("td.task button")) {
    button.setAttribute("aria-pressed", String(Number(button.textContent) === marked));
  }
  choose(-1);
}

function moveChoice(event) {
  const row = 16;
  const steps = {ArrowLeft: -1, ArrowRight: 1, ArrowUp: -row, ArrowDown: row};
  let next;
  if (event.key in steps) {
    next = chosen < 0 ? 0 : chosen + steps[event.key];
  } else if (event.key === "Home") {
    next = 0;
  } else if (event.key === "End") {
    next = nodes.length - 1;
  } else if (event.key === "Escape") {
    return choose(-1);
  } else {
    return;
  }
  event.preventDefault();
  if (nodes.length > 0) choose(Math.min(nodes.length - 1, Math.max(0, next)));
}

// Requests. ---------------------------------------------------------------------------------------

const find = at("find");
let timer = 0;
let pause = EVERY_MS;
let asking = 0;       // the number of the latest request
let reachedAt = null; // time of the last reply

class Refused extends Error {
  constructor(status) {
    super(`status ${status}`);
    this.status = status;
  }
}

async function ask(path) {
  const reply = await fetch(path, {
    cache: "no-store", credentials: "same-origin", redirect: "error",
    signal: AbortSignal.timeout(REPLY_MS),
  });
  if (!reply.ok) throw new Refused(reply.status);
  return reply.json();
}

function question() {
  const words = find.value.trim();
  return words === "" ? "/overview.json" : `/overview.json?find=${encodeURIComponent(words)}`;
}

async function refresh(number) {
  let data = await ask(question());
  if (number !== asking) return;
  if (data.halted !== undefined) {
    return data.halted === "" ? trouble("starting", "The scheduler is starting.") :
        trouble("halted", `The scheduler has stopped: ${data.halted}. Start it again when this ` +
                          "is fixed.");
  }
  // A node may join between the two replies.
  for (let i = 0; i < 3 && data.map !== map.map; i++) {
    const news = await ask("/nodes.json");
    if (news.map !== data.map) data = await ask(question());
    if (number !== asking) return;
    if (news.map !== data.map) continue;
    map = news;
    makeMap();
  }
  tasks = new Map([...data.active.rows].map((task) => [task.task, task]));
  showFigures(data);
  showUse(data);
  if (data.map === map.map) showNodes(data);
  showTasks(data);
  document.querySelector("main").hidden = false;
  document.body.dataset.state = "live";
  at("trouble").hidden = true;
  reachedAt = data.now_s;
  set(at("live"), `live · ${clock(data.now_s)}`);
}

function trouble(state, text) {
  document.body.dataset.state = state;
  const seen = reachedAt === null ? "" : ` The data below is of ${clock(reachedAt)}.`;
  set(at("trouble-text"), text + seen);
  at("trouble").hidden = false;
  set(at("live"), "not live");
}

function troubleOf(error) {
  if (error.status === 403) {
    trouble("login", "This login has expired: the scheduler was restarted. Open the newest " +
                     "login link from its log in this browser to continue.");
  } else if (error.status === 503) {
    trouble("busy", "The scheduler is busy and did not answer in time. Trying again.");
  } else if (error.status) {
    trouble("refused", `The scheduler refused the request (${error.status}). Trying again.`);
  } else {
    trouble("unreached", "The scheduler is unreachable: it is down, or the network is. Tasks " +
                         "that run continue. Trying again.");
  }
}

async function poll() {
  clearTimeout(timer);
  if (document.hidden) return;
  const number = ++asking;
  try {
    await refresh(number);
    if (number !== asking) return;
    pause = EVERY_MS;
  } catch (error) {
    if (number !== asking) return;
    troubleOf(error);
    pause = Math.min(LONGEST_MS, 2 * pause);
  }
  timer = setTimeout(poll, pause);
}

makeTables();
at("map").addEventListener("click", (event) => {
  const i = cells.indexOf(event.target.closest(".cell"));
  if (i >= 0) choose(i);
});
at("map").addEventListener("keydown", moveChoice);
for (const name of Object.keys(TABLES)) {
  at(name).addEventListener("click", (event) => {
    const button = event.target.closest("td.task button");
    if (button) mark(Number(button.textContent));
  });
}
at("search").addEventListener("submit", (event) => {
  event.preventDefault();
  poll();
});
find.addEventListener("input", () => {
  asking++;  // discards the reply in flight, which is for other words
  clearTimeout(timer);
  timer = setTimeout(poll, TYPING_MS);
});
at("retry").addEventListener("click", poll);
document.addEventListener("visibilitychange", poll);
poll();
