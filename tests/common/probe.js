// What is wrong with a page as it lies: wider than its window, texts that overlap, texts that leave their picture, texts
// that are hard to read, requests. Tests only.
(() => {
  const wrong = [];
  const root = document.documentElement;
  if (root.scrollWidth > innerWidth) wrong.push(`${root.scrollWidth} is wider than the page`);
  const name = e => `${e.tagName} "${e.textContent.trim().slice(0, 30)}"`;
  const seen = e => { const r = e.getBoundingClientRect(); return r.width > 0 && r.height > 0 && e.checkVisibility(); };
  // Boxes are a little higher than the letters in them.
  const box = (e, less) => { const r = e.getBoundingClientRect(); return { e, l: r.left + less, r: r.right - less, t: r.top + less, b: r.bottom - less }; };
  const overlaps = (all, less) => {
    const boxes = all.filter(seen).map(e => box(e, less)).sort((a, b) => a.t - b.t);
    boxes.forEach((a, i) => {
      for (let j = i + 1; j < boxes.length && boxes[j].t < a.b; j++) {
        const b = boxes[j];
        if (a.l < b.r && b.l < a.r && !a.e.contains(b.e) && !b.e.contains(a.e)) wrong.push(`overlap: ${name(a.e)} and ${name(b.e)}`);
      }
    });
  };
  for (const svg of document.querySelectorAll('svg')) {
    const texts = [...svg.querySelectorAll('text')].filter(seen);
    overlaps(texts, 1.6);
    const r = svg.getBoundingClientRect();
    for (const t of texts) {
      const b = t.getBoundingClientRect();
      if (b.left < r.left - 1 || b.right > r.right + 1 || b.top < r.top - 1 || b.bottom > r.bottom + 1) wrong.push(`leaves its picture: ${name(t)}`);
    }
  }
  overlaps([...document.querySelectorAll('h1,h2,h3,p,li,summary,td,th,dt,dd,caption,figure,pre')].filter(e => !e.closest('svg')), 0.6);
  const rgb = text => (text.match(/[\d.]+/g) || []).map(Number);
  const light = c => { const [r, g, b] = c.slice(0, 3).map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ground = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.length === 3 || c[3] > 0) return c; } return [255, 255, 255]; };
  const reported = new Set();
  for (const e of document.querySelectorAll('h1,h2,h3,p,li,a,summary,td,th,dt,dd,svg text:not(.cg-on):not(.cg-on-dark)')) {
    if (!seen(e) || e.classList.contains('skip')) continue;
    const style = getComputedStyle(e), ink = rgb(e.closest('svg') ? style.fill : style.color);
    const [a, b] = [light(ink), light(ground(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5 && !reported.has(e.tagName + e.className)) { reported.add(e.tagName + e.className); wrong.push(`contrast ${ratio.toFixed(1)}: ${name(e)}`); }
  }
  const asked = performance.getEntriesByType('resource').map(e => e.name);
  if (asked.length) wrong.push(`requests: ${asked.join(' ')}`);
  parent.postMessage(wrong.length ? `${innerWidth} wide, ${wrong.length} wrong: ${wrong.slice(0, 12).join('; ')}` : `${innerWidth} wide, nothing wrong`, '*');
})();
