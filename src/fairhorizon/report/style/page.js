// Charts: each JSON element holds a specification in Vega-Lite, its data as columns.
const config = JSON.parse(document.getElementById("chart-config")?.textContent ?? "{}");

function column(values) {
  return Array.isArray(values) ? values : values.numbers.map(number => values.words[number]);
}

function unfold(part) {
  if (part === null || typeof part !== "object") return;
  if (part.data?.values && !Array.isArray(part.data.values)) {
    const columns = Object.entries(part.data.values).map(([name, values]) => [name, column(values)]);
    part.data.values = columns[0][1].map((_, row) =>
      Object.fromEntries(columns.map(([name, values]) => [name, values[row]])));
  }
  Object.values(part).forEach(unfold);
}

// A drawing is panels and a legend: what is hidden or in focus is so in all of its panels.
for (const drawing of document.querySelectorAll(".drawing")) {
  const views = [];
  const buttons = [...drawing.querySelectorAll(".legend button")];
  let present = "";
  const focus = series => {
    if (series === present) return;
    present = series;
    views.forEach(view => view.signal("focus", series).run());
  };
  for (const button of buttons) {
    button.addEventListener("click", () => {
      button.setAttribute("aria-pressed", button.getAttribute("aria-pressed") !== "true");
      const hidden = buttons.filter(one => one.getAttribute("aria-pressed") === "false");
      views.forEach(view => view.signal("hidden", hidden.map(one => one.dataset.series)).run());
    });
    button.addEventListener("pointerenter", () => focus(button.dataset.series));
    button.addEventListener("pointerleave", () => focus(""));
  }
  for (const place of drawing.querySelectorAll(".chart")) {
    const specification = JSON.parse(place.nextElementSibling.textContent);
    unfold(specification);
    // ast: expressions are interpreted, because the page forbids code made of strings
    const options = {actions: false, renderer: "svg", ast: true, config};
    vegaEmbed(place, specification, options).then(({view}) => {
      views.push(view);
      view.addEventListener("pointermove", (event, item) => focus(item?.datum?.series ?? ""));
      place.addEventListener("pointerleave", () => focus(""));
      place.dataset.drawn = "";
    }).catch(error => console.error(error));
  }
}

// Tables: a heading sorts, the largest first at the first click.
document.addEventListener("click", ({target}) => {
  const head = target.closest("button")?.closest(".sortable th");
  if (!head) return;
  const body = head.closest("table").tBodies[0];
  const sign = head.ariaSort === "descending" ? 1 : -1;
  const cell = row => row.cells[head.cellIndex];
  const value = row => Number(cell(row).dataset.value ?? -sign * Infinity);
  const order = head.classList.contains("number")
    ? (a, b) => sign * (value(a) - value(b) || 0)
    : (a, b) => -sign * cell(a).textContent.localeCompare(cell(b).textContent);
  for (const other of head.parentNode.cells) other.ariaSort = "none";
  head.ariaSort = sign < 0 ? "descending" : "ascending";
  body.append(...[...body.rows].sort(order));
});

// A table that is wider than its place says so.
const fits = new ResizeObserver(entries => entries.forEach(({target}) => measure(target)));
function measure(scroll) {
  const rest = scroll.scrollWidth - scroll.clientWidth;
  const wide = scroll.parentNode;
  wide.classList.toggle("overflows", rest > 1);
  wide.classList.toggle("at-end", scroll.scrollLeft >= rest - 1);
  wide.querySelector(".hint").hidden = rest <= 1;
}
for (const scroll of document.querySelectorAll(".scroll")) {
  measure(scroll);
  fits.observe(scroll);
  scroll.addEventListener("scroll", () => measure(scroll));
}
