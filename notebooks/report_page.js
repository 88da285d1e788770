// What belongs to the whole page: its languages, dark or light, sections that open when they are led to, print, copying.
const [words, data] = ["words", "data"].map((id) => JSON.parse(document.getElementById(id).textContent));
const root = document.documentElement;
root.classList.add("scripted");
const theme = document.querySelector(".theme");
const dark = matchMedia("(prefers-color-scheme: dark)");

window.say = (key, facts = {}) =>
  words[root.lang][key].replace(/\{(\w+)\}/g, (whole, name) => (name in facts ? facts[name].toLocaleString("en") : whole));
window.make = (tag, className, text) => {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
};

function stored(name, value) {
  try { // a browser may forbid it to a file
    if (value) localStorage.setItem(`mindalign-${name}`, value);
    return localStorage.getItem(`mindalign-${name}`);
  } catch { return null; }
}

// The data that a script element names, in the language of the page.
window.dataOf = (script) => inLanguage(data[script.dataset.place]);

function inLanguage(value) {
  if (Array.isArray(value)) return value.map(inLanguage);
  if (value === null || typeof value !== "object") return value;
  if (root.lang in value) return value[root.lang];
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, inLanguage(one)]));
}

// Scripts draw in the version of a language when it is shown for the first time.
const drawn = new Set();
const draws = [];
const version = () => document.querySelector(`div.version[lang=${root.lang}]`);
window.whenShown = (draw) => {
  drawn.add(root.lang);
  draws.push(draw);
  draw(version());
};

const chosen = `language-of-${location.pathname}`; // of this page: each opens in the language that it was made for
const languageButton = document.querySelector(".language");
const otherLanguage = () => Object.keys(words).find((one) => one !== root.lang);

function nameLanguage() {
  languageButton.lang = otherLanguage();
  languageButton.textContent = words[otherLanguage()].language;
  document.title = words[root.lang].title;
}

// What stands open in one language stands open in the other, and what was in view stays there.
function show(language) {
  const before = version();
  const seen = [...before.querySelectorAll("section[id]")].find((one) => one.getBoundingClientRect().bottom > 0);
  const top = seen?.getBoundingClientRect().top;
  root.lang = language;
  for (const section of before.querySelectorAll("section[id]")) {
    const [details, twin] = [section, twinOf(section)].map((one) => one?.querySelector(":scope > details"));
    if (details && twin) twin.open = details.open;
  }
  if (!drawn.has(language)) for (const draw of draws) draw(version());
  drawn.add(language);
  nameLanguage();
  nameTheme();
  if (seen && top < 0) scrollBy(0, twinOf(seen).getBoundingClientRect().top - top);
}

function twinOf(section) {
  return document.getElementById(section.id.replace(/^[a-z]+/, root.lang));
}

if (stored(chosen) in words) root.lang = stored(chosen);
nameLanguage();
languageButton.addEventListener("click", () => {
  show(otherLanguage());
  stored(chosen, root.lang);
});

function isDark() {
  return root.dataset.theme ? root.dataset.theme === "dark" : dark.matches;
}

function nameTheme() {
  theme.textContent = say(isDark() ? "light" : "dark");
}

const kept = stored("theme");
if (kept === "dark" || kept === "light") root.dataset.theme = kept;
theme.addEventListener("click", () => {
  root.dataset.theme = isDark() ? "light" : "dark";
  stored("theme", root.dataset.theme);
  nameTheme();
});
dark.addEventListener("change", nameTheme);
nameTheme();

function openTarget() {
  const place = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const language = place && place.closest(".version")?.lang;
  if (!language) return;
  if (language !== root.lang) show(language);
  const details = place.querySelector(":scope > details");
  if (details) details.open = true;
  for (let one = place.closest("details"); one; one = one.parentElement.closest("details")) one.open = true;
  place.scrollIntoView();
}
addEventListener("hashchange", openTarget);
document.addEventListener("click", (event) => {
  const link = event.target.closest('a[href^="#"]');
  if (link && link.hash === location.hash) openTarget();
});
openTarget();

// n and N lead from fault to fault.
let reached = -1;
addEventListener("keydown", (event) => {
  if (!["n", "N"].includes(event.key) || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest?.("input, textarea, select")) return;
  const faults = [...version().querySelectorAll("[id*=-fault-]")];
  if (!faults.length) return;
  reached = (reached + (event.key === "n" ? 1 : -1) + faults.length) % faults.length;
  location.hash = faults[reached].id;
});

let closed = [];
addEventListener("beforeprint", () => {
  closed = [...document.querySelectorAll("details:not([open])")];
  for (const one of closed) one.open = true;
});
addEventListener("afterprint", () => {
  for (const one of closed) one.open = false;
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest(".copy");
  if (!button) return;
  const code = button.parentElement.querySelector("code");
  try {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = say("copied");
  } catch { // a browser may forbid it: then the reader copies what is marked
    getSelection().selectAllChildren(code);
  }
});
