// What a reader would not see, or not be able to tell apart: one sentence each.
(() => {
  const found = [], width = window.innerWidth, near = 1.0;
  const said = (text) => JSON.stringify(text.trim().replace(/\s+/g, " ").slice(0, 60));
  const scrolls = (element) => element.closest(".wide") && !matchMedia("print").matches;
  // A word may be broken where it says so (<wbr>, a hyphen), and one that no line has room for; a command anywhere.
  const longest = 24;
  const broken = (node) => {
    if (node.parentElement.closest("pre, svg")) return;
    for (const match of node.data.matchAll(/[^\s-]+-?/g)) {
      const range = document.createRange();
      range.setStart(node, match.index);
      range.setEnd(node, match.index + match[0].length);
      const lines = new Set([...range.getClientRects()].filter(each => each.width > 0).map(each => Math.round(each.top)));
      if (lines.size > 1 && match[0].length <= longest) found.push(`broken within a word: ${said(match[0])} of ${said(node.data)}`);
    }
  };
  // Strokes of a picture that no text may lie across: limits, the middle of a tornado, ranges, axes, curves.
  const STROKES = "path.mark, path.middle, path.whisker, path.axis, path.l0, path.l1, path.l2, path.l3";
  const segments = (path) => {
    const matrix = path.getScreenCTM(), found = [];
    const place = (x, y) => new DOMPoint(+x, +y).matrixTransform(matrix);
    for (const part of path.getAttribute("d").split("M").filter(each => each)) {
      const points = part.replace(/Z/g, "").split("L").map(each => place(...each.trim().split(" ")));
      points.slice(1).forEach((point, at) => found.push([points[at], point]));
    }
    return found;
  };
  // Whether a segment has a point inside a box (Liang and Barsky 1984).
  const crosses = ([a, b], box) => {
    let from = 0, to = 1;
    for (const [step, room] of [[a.x - b.x, a.x - box.left], [b.x - a.x, box.right - a.x], [a.y - b.y, a.y - box.top], [b.y - a.y, box.bottom - a.y]]) {
      if (step === 0 && room <= 0) return false;
      if (step < 0) from = Math.max(from, room / step);
      if (step > 0) to = Math.min(to, room / step);
    }
    return from < to;
  };
  const shown = (node) => !node.parentElement.closest("title, desc, style, head, noscript");
  if (document.documentElement.scrollWidth > width + near)
    found.push(`the page is ${document.documentElement.scrollWidth} wide in a window of ${width}`);
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (!node.data.trim() || !shown(node)) continue;
    broken(node);
    const range = document.createRange();
    range.selectNodeContents(node);
    const box = node.parentElement.closest("svg, td, th, pre, li, p, dd, dt, h1, h2, figcaption").getBoundingClientRect();
    for (const each of range.getClientRects()) {
      if (!scrolls(node.parentElement) && (each.left < -near || each.right > width + near))
        found.push(`outside the page: ${said(node.data)} to ${each.right.toFixed(0)} of ${width}`);
      if (each.left < box.left - near || each.right > box.right + near || each.top < box.top - 3 || each.bottom > box.bottom + 3)
        found.push(`outside its ${node.parentElement.localName}: ${said(node.data)}`);
      if (each.height < 6) found.push(`too small to read: ${said(node.data)}`);
    }
  }
  for (const wide of document.querySelectorAll(".wide")) {
    const box = wide.getBoundingClientRect();
    if (box.left < -near || box.right > width + near) found.push("a table that scrolls is outside the page");
    if (width >= 1200 && wide.scrollWidth > wide.clientWidth + near) found.push(`cut at ${width}: ${said(wide.textContent)}`);
  }
  for (const svg of document.querySelectorAll("svg")) {
    const texts = [...svg.querySelectorAll("text")].map((text) => [text.textContent, text.getBoundingClientRect()]);
    texts.forEach(([one, a], place) => {
      for (const [other, b] of texts.slice(place + 1))
        if (a.left < b.right - near && b.left < a.right - near && a.top < b.bottom - 4 && b.top < a.bottom - 4)
          found.push(`${said(one)} lies over ${said(other)}`);
    });
    for (const path of svg.querySelectorAll(STROKES)) {
      const lines = segments(path);
      for (const [text, a] of texts) {
        // letters, without the room of a line above and below them
        const letters = {left: a.left + near, right: a.right - near, top: a.top + .2 * a.height, bottom: a.bottom - .25 * a.height};
        if (letters.left < letters.right && lines.some(line => crosses(line, letters)))
          found.push(`${said(text)} lies across a line (${path.getAttribute("class")})`);
      }
    }
    if (!svg.closest("figure")?.querySelector("figcaption")?.textContent.trim()) found.push("a picture without a title");
    if (svg.getAttribute("role") !== "img" || !svg.querySelector("desc")?.textContent) found.push("a picture without words");
  }
  return found;
})()
