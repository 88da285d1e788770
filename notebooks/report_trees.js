// Both models as trees, kept in step: what is opened or chosen on one side is so on the other.
const SIDES = ["reference", "candidate"];
const MODES = ["gathered", "alone"];
const AT_ONCE = 200; // children drawn at once
const LED_TO = 12; // faults that are opened for the reader

class Trees {
  constructor(place) {
    this.place = place;
    const data = dataOf(place.querySelector("script"));
    this.sides = Object.fromEntries(SIDES.map((side) => [side, data[side].map(asNode)]));
    for (const side of SIDES) {
      this.sides[side].forEach((node, index) => node.parent >= 0 && this.sides[side][node.parent].inside.push(index));
      place.querySelector(`[data-side=${side}] ul`).append(this.draw(side, 0));
    }
    this.colour();
    this.search();
    this.lead();
  }

  colour() {
    const all = SIDES.flatMap((side) => this.sides[side]);
    const mode = all.some((node) => isKnown(node.own.alone)) ? "alone" : "gathered";
    for (const radio of this.place.querySelectorAll("[type=radio]")) {
      radio.checked = radio.value === mode;
      radio.addEventListener("change", () => { this.place.dataset.mode = radio.value; });
    }
    this.place.dataset.mode = mode;
  }

  // Open the way to what is at fault; of a clean model the first level.
  lead() {
    this.open("reference", 0, true);
    const mode = this.place.dataset.mode;
    const nodes = this.sides.candidate;
    const isFaulty = (node) => node.worst[mode].level > 1 && isKnown(node.worst[mode]);
    const lowest = nodes.map((node, index) => [node, index])
      .filter(([node]) => isFaulty(node) && !node.inside.some((child) => isFaulty(nodes[child])));
    const shown = mode === "alone" ? lowest.slice(0, LED_TO) : lowest.slice(0, 1);
    for (const [, index] of shown) this.reveal("candidate", index);
    if (shown.length) this.choose("candidate", shown[0][1], false);
  }

  draw(side, index) {
    const node = this.sides[side][index];
    const item = make("li");
    node.line = make("div");
    node.twist = make("button", "twist", node.inside.length ? "▸" : "");
    node.twist.type = "button";
    if (node.inside.length) node.twist.addEventListener("click", () => this.open(side, index, !node.isOpen));
    else node.twist.tabIndex = -1;
    node.line.append(node.twist, this.button(side, index));
    item.append(node.line);
    if (node.inside.length) {
      node.list = make("ul");
      node.list.hidden = true;
      item.append(node.list);
      this.name(node);
    } else node.twist.setAttribute("aria-hidden", "true");
    this.paint(node);
    return item;
  }

  button(side, index) {
    const node = this.sides[side][index];
    const pick = make("button", "pick");
    pick.type = "button";
    pick.append(make("span", "dot"), make("span", "name", node.name), make("span", "class", node.kind));
    for (const mode of MODES) pick.append(make("span", `factor in-${mode}`));
    pick.addEventListener("click", () => this.choose(side, index, true));
    return pick;
  }

  name(node) {
    node.twist.textContent = node.isOpen ? "▾" : "▸";
    node.twist.setAttribute("aria-expanded", String(Boolean(node.isOpen)));
    node.twist.setAttribute("aria-label", say(node.isOpen ? "close_node" : "open_node", { name: node.name }));
  }

  // A closed module shows the worst of what it holds, an open one its own.
  paint(node) {
    const shown = node.isOpen ? node.own : node.worst;
    const isCurrent = node.line.classList.contains("current");
    node.line.className = `node g${shown.gathered.level} a${shown.alone.level}${isCurrent ? " current" : ""}`;
    for (const mode of MODES) {
      const { factor } = shown[mode];
      node.line.querySelector(`.in-${mode}`).textContent = factor && `${factor} ×`;
    }
  }

  open(side, index, isOpen) {
    const node = this.sides[side][index];
    if (!node.inside.length || Boolean(node.isOpen) === isOpen) return;
    if (isOpen) this.reveal(side, index);
    node.isOpen = isOpen;
    if (isOpen && !node.drawn) this.fill(side, node, AT_ONCE);
    node.list.hidden = !isOpen;
    this.name(node);
    this.paint(node);
    if (node.pair >= 0) this.open(other(side), node.pair, isOpen);
  }

  // Draw children up to some number; a button draws more.
  fill(side, node, upTo) {
    node.more?.remove();
    for (const child of node.inside.slice(node.drawn ?? 0, upTo)) node.list.append(this.draw(side, child));
    node.drawn = Math.min(upTo, node.inside.length);
    const rest = node.inside.length - node.drawn;
    if (!rest) return;
    node.more = make("li");
    const button = make("button", "pick", say("more_nodes", { count: rest }));
    button.type = "button";
    button.addEventListener("click", () => this.fill(side, node, node.drawn + AT_ONCE));
    node.more.append(button);
    node.list.append(node.more);
  }

  // Open all above a node, so that it is drawn.
  reveal(side, index) {
    const node = this.sides[side][index];
    if (node.parent < 0) return;
    const above = this.sides[side][node.parent];
    this.open(side, node.parent, true);
    const place = above.inside.indexOf(index);
    if (place >= above.drawn) this.fill(side, above, place + 1);
  }

  choose(side, index, isScrolled) {
    this.unmark();
    const node = this.sides[side][index];
    const chosen = [[side, index], ...(node.pair >= 0 ? [[other(side), node.pair]] : [])];
    for (const [where, which] of chosen) {
      this.reveal(where, which);
      const { line } = this.sides[where][which];
      line.classList.add("current");
      line.querySelector(".pick").setAttribute("aria-current", "true");
    }
    const [first, second] = chosen.map(([where, which]) => this.sides[where][which].line);
    if (isScrolled && second) level(first, second);
    else if (!isScrolled) for (const one of [first, second]) if (one) centre(one);
    this.tell(node);
  }

  // Layers beyond their limit, and modules whose path on either side holds a text; places are those of the reference
  // where it has them.
  red() {
    const { mode } = this.place.dataset;
    return this.placesOf("candidate", (node) => isKnown(node.own[mode]) && node.own[mode].level > 1);
  }

  matching(text) {
    const holds = (side, index) => index >= 0 && this.path(side, index).toLowerCase().includes(text.toLowerCase());
    const [first, second] = SIDES;
    return [
      ...this.placesOf(first, (node, index) => holds(first, index) || holds(second, node.pair)),
      ...this.placesOf(second, (node, index) => node.pair < 0 && holds(second, index)),
    ];
  }

  placesOf(side, isMeant) {
    return this.sides[side].flatMap((node, index) => (isMeant(node, index) ? [[side, index]] : []));
  }

  path(side, index) {
    const node = this.sides[side][index];
    node.path ??= node.parent > 0 ? `${this.path(side, node.parent)}.${node.name}` : node.name;
    return node.path;
  }

  // Go on or back among places, from the one that is chosen; say which of how many it is.
  step(places, by) {
    const isChosen = ([side, index]) => this.sides[side][index].line?.classList.contains("current");
    const at = places.findIndex(isChosen);
    const next = at < 0 ? (by > 0 ? 0 : places.length - 1) : (at + by + places.length) % places.length;
    if (places.length) this.choose(...places[next], false);
    this.place.querySelector(".count").textContent = say("place_of", { place: places.length && next + 1, count: places.length });
  }

  search() {
    const field = this.place.querySelector("[type=search]");
    field.addEventListener("input", () => {
      this.unmark();
      if (field.value) this.step(this.matching(field.value), 1);
      else this.place.querySelector(".count").textContent = "";
    });
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && field.value) this.step(this.matching(field.value), event.shiftKey ? -1 : 1);
    });
  }

  unmark() {
    for (const one of this.place.querySelectorAll(".current")) {
      one.classList.remove("current");
      one.querySelector(".pick").removeAttribute("aria-current");
    }
  }

  tell(node) {
    const place = this.place.querySelector(".chosen");
    const version = this.place.closest(".version");
    const table = tables.find((one) => one.place.dataset.name === "layers" && version.contains(one.place));
    const row = table?.rows[node.row];
    const facts = row ? table.heads.map((head, index) => [head.textContent, row.cells[index]]) : [["", node.reason]];
    const list = make("dl");
    for (const [label, fact] of facts.filter(([, text]) => text)) {
      const line = make("div");
      const text = make("dd");
      text.append(...fact.split(/(?<=\.)/).flatMap((part, place) => (place ? [make("wbr"), part] : [part])));
      line.append(make("dt", "", label), text);
      list.append(line);
    }
    place.replaceChildren(...(list.children.length ? [list] : []));
  }
}

function asNode([name, kind, parent, pair, own, worst, row, reason]) {
  return { name, kind, parent, pair, own: asColours(own), worst: asColours(worst), row, reason, inside: [] };
}

function asColours([gatheredLevel, gathered, aloneLevel, alone]) {
  return { gathered: { level: gatheredLevel, factor: gathered }, alone: { level: aloneLevel, factor: alone } };
}

function isKnown({ level }) {
  return level > 0 && level < 5;
}

function other(side) {
  return SIDES[1 - SIDES.indexOf(side)];
}

// Scroll the second tree so that a line stands as high as its counterpart.
function level(line, counterpart) {
  const tree = counterpart.closest(".tree");
  tree.scrollTop += counterpart.getBoundingClientRect().top - line.getBoundingClientRect().top;
}

function centre(line) {
  const tree = line.closest(".tree");
  tree.scrollTop += line.getBoundingClientRect().top - tree.getBoundingClientRect().top - tree.clientHeight / 3;
}

const drawn = [];
whenShown((version) => version.querySelectorAll(".trees").forEach((place) => drawn.push(new Trees(place))));

// r and R lead from layer to layer beyond its limit.
addEventListener("keydown", (event) => {
  if (!["r", "R"].includes(event.key) || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest?.("input, textarea, select")) return;
  const trees = drawn.find(({ place }) => place.closest(".version").lang === document.documentElement.lang);
  if (!trees) return;
  for (let one = trees.place.closest("details"); one; one = one.parentElement.closest("details")) one.open = true;
  trees.step(trees.red(), event.key === "r" ? 1 : -1);
  trees.place.scrollIntoView({ block: "nearest" });
});
