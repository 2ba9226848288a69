// Loads what changes again every ten seconds, but never while somebody fills in a form.
const EVERY = 10_000;

function touched(field) {
  if (field.tagName === "SELECT") {
    return [...field.options].some(option => option.selected !== option.defaultSelected);
  }
  return "defaultValue" in field && field.value !== field.defaultValue;
}

function isBusy() {
  return [...document.forms].some(form =>
    form.contains(document.activeElement) || [...form.elements].some(touched));
}

async function refresh() {
  const main = document.querySelector("main[data-refresh]");
  if (!main || document.hidden || isBusy()) return;
  let answer;
  try {
    answer = await fetch(location.href, {cache: "no-store"});
  } catch {
    answer = null;
  }
  document.body.classList.toggle("is-stale", !answer?.ok);
  if (!answer?.ok) return;
  if (answer.redirected) location.reload();  // the session is over
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const fresh = page.querySelector("main[data-refresh]");
  if (!fresh || isBusy()) return;
  const open = [...main.querySelectorAll("details")].map(one => one.open);
  const after = [...fresh.querySelectorAll("details")];
  if (open.length === after.length) after.forEach((one, n) => { one.open ||= open[n]; });
  main.replaceWith(document.adoptNode(fresh));
}

setInterval(refresh, EVERY);
