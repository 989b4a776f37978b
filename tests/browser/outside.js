// What a reader would not see, or not be able to tell apart: one sentence each.
(() => {
  const found = [], width = window.innerWidth, near = 1.0;
  const said = (text) => JSON.stringify(text.trim().replace(/\s+/g, " ").slice(0, 60));
  const scrolls = (element) => element.closest(".wide") && !matchMedia("print").matches;
  const shown = (node) => !node.parentElement.closest("title, desc, style, head, noscript");
  if (document.documentElement.scrollWidth > width + near)
    found.push(`the page is ${document.documentElement.scrollWidth} wide in a window of ${width}`);
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (!node.data.trim() || !shown(node)) continue;
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
    if (!svg.closest("figure")?.querySelector("figcaption")?.textContent.trim()) found.push("a picture without a title");
    if (svg.getAttribute("role") !== "img" || !svg.querySelector("desc")?.textContent) found.push("a picture without words");
  }
  return found;
})()
