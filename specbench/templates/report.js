(function () {
"use strict";
var root = document.documentElement, tip = document.getElementById("tip");
root.classList.remove("no-script");
function all(what, where) { return Array.prototype.slice.call((where || document).querySelectorAll(what)); }
function make(name, text, kind) {
  var one = document.createElement(name);
  if (text) one.textContent = text;
  if (kind) one.className = kind;
  return one;
}

/* Settings: one at a time, kept in the address. */
function show(key) {
  all("[data-setting]").forEach(function (one) { one.hidden = one.dataset.setting !== key; });
  all("#settings input").forEach(function (one) { one.checked = one.value === key; });
}
var keys = all("#settings input").map(function (one) { return one.value; });
function fromAddress() {
  var found = /[#&]setting=([^&]*)/.exec(location.hash), key = found && decodeURIComponent(found[1]);
  if (keys.indexOf(key) >= 0) show(key);
}
if (keys.length) {
  show(keys[0]);
  fromAddress();
  window.addEventListener("hashchange", fromAddress);
  all("#settings input").forEach(function (one) {
    one.addEventListener("change", function () {
      show(one.value);
      history.replaceState(null, "", "#setting=" + encodeURIComponent(one.value));
    });
  });
}

/* Tables: sort, filter, pages. */
var PAGE = 200;
all(".sheet").forEach(function (sheet, number) {
  var table = sheet.querySelector("table"), body = table.tBodies[0], heads = all("th", table);
  var rows = all("tr", body), page = 0, off = {}, text = "", tools = make("div", "", "tools");
  var status = make("span"), input, back, next;
  status.setAttribute("role", "status");
  status.setAttribute("aria-live", "polite");
  rows.forEach(function (row, place) { row.place = place; row.words = row.textContent.toLowerCase(); });
  function fits(row) { return row.words.indexOf(text) >= 0 && !off[row.dataset.draft]; }
  function draw() {
    var found = rows.filter(fits), pages = Math.max(1, Math.ceil(found.length / PAGE));
    page = Math.min(page, pages - 1);
    rows.forEach(function (row) { row.hidden = true; });
    found.slice(page * PAGE, (page + 1) * PAGE).forEach(function (row) { row.hidden = false; });
    if (!input) return;
    status.textContent = found.length + " of " + rows.length + " " + sheet.dataset.noun +
      (pages > 1 ? ", page " + (page + 1) + " of " + pages : "");
    if (back) { back.disabled = page === 0; next.disabled = page >= pages - 1; }
  }
  function value(row, column) {
    var cell = row.cells[column], key = cell.dataset.key;
    return key === undefined ? cell.textContent.trim().toLowerCase() : Number(key);
  }
  function order(column, down) {
    rows.sort(function (a, b) {
      var x = value(a, column), y = value(b, column);
      /* Empty cells stand last in both directions. */
      if (x === "" || y === "") return (x === "") - (y === "") || a.place - b.place;
      var less = typeof x === typeof y ? (x < y ? -1 : x > y ? 1 : 0) : (typeof x === "number" ? -1 : 1);
      return (down ? -less : less) || a.place - b.place;
    });
    rows.forEach(function (row) { body.appendChild(row); });
  }
  heads.forEach(function (head, column) {
    var button = make("button"), name = head.textContent;
    if (head.querySelector(".unseen")) return;
    button.type = "button";
    button.textContent = name;
    head.textContent = "";
    head.appendChild(button);
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", function () {
      var down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach(function (one) { if (one.hasAttribute("aria-sort")) one.setAttribute("aria-sort", "none"); });
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      order(column, down);
      page = 0;
      draw();
    });
  });
  if ("filter" in sheet.dataset) {
    var label = make("label", "Filter ");
    input = make("input");
    input.type = "search";
    input.setAttribute("aria-controls", table.id);
    label.appendChild(input);
    tools.appendChild(label);
    tools.appendChild(status);
    input.addEventListener("input", function () { text = input.value.toLowerCase(); page = 0; draw(); });
    if (rows.length > PAGE) {
      back = make("button", "previous", "page");
      next = make("button", "next", "page");
      back.type = next.type = "button";
      back.addEventListener("click", function () { page -= 1; draw(); });
      next.addEventListener("click", function () { page += 1; draw(); });
      tools.appendChild(back);
      tools.appendChild(next);
    }
    sheet.insertBefore(tools, sheet.firstChild);
  }
  sheet.addEventListener("drafts", function (event) { off = event.detail; draw(); });
  draw();
});

/* Drafts on and off, in the chart and in the table below it. */
all(".toggles").forEach(function (group) {
  var scene = group.closest("[data-setting]");
  group.addEventListener("change", function () {
    var off = {};
    all("input", group).forEach(function (one) { if (!one.checked) off[one.value] = true; });
    all("[data-chart=speedup_vs_gamma] [data-draft]", scene).forEach(function (one) {
      one.style.display = off[one.dataset.draft] ? "none" : "";
    });
    all(".cells .sheet", scene).forEach(function (one) {
      one.dispatchEvent(new CustomEvent("drafts", { detail: off }));
    });
  });
});

/* Numbers at a mark: by pointer, tap or keyboard. */
var lit = null;
function hide() {
  tip.hidden = true;
  if (lit) lit.classList.remove("on");
  lit = null;
}
function tell(mark) {
  var box = mark.getBoundingClientRect(), left = box.left + box.width / 2 - 20;
  if (lit) lit.classList.remove("on");
  lit = mark;
  mark.classList.add("on");
  tip.textContent = mark.said;
  tip.hidden = false;
  left = Math.max(8, Math.min(left, root.clientWidth - tip.offsetWidth - 8));
  var top = box.top - tip.offsetHeight - 10;
  tip.style.left = left + window.scrollX + "px";
  tip.style.top = (top < 4 ? box.bottom + 10 : top) + window.scrollY + "px";
}
function walk(group, marks, name) {
  var at = 0;
  group.setAttribute("tabindex", "0");
  group.setAttribute("role", "img");
  group.setAttribute("aria-label", name + ", " + marks.length + " marks: walk with the arrow keys");
  group.setAttribute("data-walk", "");
  group.addEventListener("focus", function () { tell(marks[at]); });
  group.addEventListener("blur", hide);
  group.addEventListener("keydown", function (event) {
    var step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (step) {
      at = Math.max(0, Math.min(marks.length - 1, at + step));
      tell(marks[at]);
      event.preventDefault();
    }
  });
}
all(".chart svg").forEach(function (svg) {
  var bars = [];
  all("text", svg).forEach(function (one) { one.setAttribute("aria-hidden", "true"); });
  all(".mark", svg).forEach(function (mark) {
    var title = mark.querySelector("title");
    mark.said = title.textContent;
    mark.removeChild(title);
    mark.addEventListener("pointerenter", function () { tell(mark); });
    mark.addEventListener("pointerleave", hide);
    mark.addEventListener("click", function () { tell(mark); });
    if (mark.tagName === "path") bars.push(mark);
  });
  all("[id$=-marks]", svg).forEach(function (group) {
    var marks = all(".mark", group);
    if (marks.length) walk(group, marks, marks[0].said.split(/[,:]/)[0]);
  });
  if (bars.length) walk(svg, bars, "Bars");
});
document.addEventListener("keydown", function (event) { if (event.key === "Escape") hide(); });

/* Texts: one at a time. */
all(".picker").forEach(function (picker) {
  var scene = picker.closest("[data-setting]");
  function pick() {
    all(".sample", scene).forEach(function (one) { one.hidden = one.dataset.place !== picker.value; });
  }
  picker.addEventListener("change", pick);
  pick();
});
var had = document.getElementById("had");
if (had) had.addEventListener("change", function () { root.classList.toggle("show-had", had.checked); });

all(".copy").forEach(function (button) {
  button.addEventListener("click", function () {
    var range = document.createRange();
    range.selectNodeContents(document.getElementById(button.dataset.copy));
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    if (document.execCommand("copy")) button.textContent = "copied";
  });
});

/* On paper everything is open, and every setting is there. */
window.addEventListener("beforeprint", function () {
  all("details:not([open])").forEach(function (one) { one.open = true; one.was = true; });
});
window.addEventListener("afterprint", function () {
  all("details").forEach(function (one) { if (one.was) { one.open = false; one.was = false; } });
});
})();
