// What belongs to the whole page: its words, dark or light, sections that open when they are led to, print, copying.
const words = JSON.parse(document.getElementById("words").textContent);
const root = document.documentElement;
root.classList.add("scripted");
const theme = document.querySelector(".theme");
const dark = matchMedia("(prefers-color-scheme: dark)");

window.say = (key, facts = {}) =>
  words[key].replace(/\{(\w+)\}/g, (whole, name) => (name in facts ? facts[name].toLocaleString("en") : whole));
window.make = (tag, className, text) => {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
};

function stored(value) {
  try { // a browser may forbid it to a file
    if (value) localStorage.setItem("mindalign-theme", value);
    return localStorage.getItem("mindalign-theme");
  } catch { return null; }
}

function isDark() {
  return root.dataset.theme ? root.dataset.theme === "dark" : dark.matches;
}

function nameTheme() {
  theme.textContent = say(isDark() ? "light" : "dark");
}

const kept = stored();
if (kept === "dark" || kept === "light") root.dataset.theme = kept;
theme.addEventListener("click", () => {
  root.dataset.theme = isDark() ? "light" : "dark";
  stored(root.dataset.theme);
  nameTheme();
});
dark.addEventListener("change", nameTheme);
nameTheme();

function openTarget() {
  const place = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const details = place && place.querySelector(":scope > details");
  if (!details) return;
  details.open = true;
  place.scrollIntoView();
}
addEventListener("hashchange", openTarget);
document.addEventListener("click", (event) => {
  const link = event.target.closest('a[href^="#"]');
  if (link && link.hash === location.hash) openTarget();
});
openTarget();

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
