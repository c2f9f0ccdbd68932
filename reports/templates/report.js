// Tables that can be searched and sorted, with the rows that follow them as text; timelines that zoom; and everything open on
// paper. The page reads without it, and it asks for nothing.
(() => {
'use strict';
const PAGE = 250, FEW = 10;
const units = {KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40, MB: 1e6, GB: 1e9, ns: 1e-9, us: 1e-6, ms: 1e-3,
  'kB/s': 1e3, 'MB/s': 1e6, 'GB/s': 1e9, 'TB/s': 1e12};
const words = new Intl.Collator('en', {numeric: true}).compare;
// The first number of a cell in base units; cells without one come last.
const number = text => {
  const found = /(-?\d+(?:\.\d+)?(?:e[-+]?\d+)?)(?:\.\.[-+\d.]+)?\s*([A-Za-z/]*)/.exec(text);
  return found ? found[1] * (units[found[2]] || 1) : NaN;
};
const numbers = (a, b) => isNaN(a) ? (isNaN(b) ? 0 : 1) : isNaN(b) ? -1 : a - b;
const make = (name, properties) => Object.assign(document.createElement(name), properties);
const onPaper = [];

const serve = box => {
  const table = box.querySelector('table'), body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  const more = box.nextElementSibling && box.nextElementSibling.matches('details.more') ? box.nextElementSibling : null;
  const lines = more ? more.querySelector('pre').textContent.trimEnd().split('\n').slice(1) : [];
  const total = body.rows.length + lines.length;
  if (total < 2) return;
  let rows, found, first = 0, column = -1, way = 1;
  const read = () => {
    if (rows) return;
    rows = [...body.rows].map(tr => ({tr, cells: [...tr.cells].map(cell => cell.textContent)}));
    for (const line of lines) { const [tone, ...cells] = line.split('\t'); rows.push({tone, cells}); }
    rows.forEach((row, at) => { row.at = at; row.text = row.cells.join('\n').toLowerCase(); });
    found = rows;
  };
  const drawn = row => {
    if (row.tr) return row.tr;
    row.tr = make('tr', {className: row.tone});
    row.cells.forEach((text, at) => row.tr.append(make('td', {className: heads[at].className, textContent: text})));
    return row.tr;
  };
  const tools = make('p', {className: 'tools'}), count = make('span');
  const search = make('input', {type: 'search', placeholder: 'all words, in any column'});
  const label = make('label', {textContent: 'Search '});
  const before = make('button', {type: 'button', textContent: 'Previous'}), after = make('button', {type: 'button', textContent: 'Next'});
  count.setAttribute('role', 'status');
  const say = () => {
    const all = found ? found.length : total, last = Math.min(first + PAGE, all);
    const of = all < total ? `${all} of ${total} rows match` : `${total} rows`;
    count.textContent = all > PAGE ? `${of}; shown: ${first + 1} to ${last}` : of;
    before.hidden = after.hidden = all <= PAGE;
    before.disabled = first === 0;
    after.disabled = last === all;
  };
  const show = all => { body.replaceChildren(...(all ? found : found.slice(first, first + PAGE)).map(drawn)); say(); };
  const find = () => {
    read();
    const wanted = search.value.toLowerCase().split(/\s+/).filter(word => word);
    found = rows.filter(row => wanted.every(word => row.text.includes(word)));
    if (column >= 0) {
      const isNumber = heads[column].classList.contains('n'), compare = isNumber ? numbers : words;
      for (const row of found) row.key = isNumber ? number(row.cells[column] || '') : row.cells[column] || '';
      // What has no number stays last in both directions.
      found.sort((a, b) => (isNumber && (isNaN(a.key) || isNaN(b.key)) ? 1 : way) * compare(a.key, b.key) || a.at - b.at);
    }
    first = 0;
    show();
  };
  heads.forEach((head, at) => {
    const button = make('button', {type: 'button', className: 'sort'});
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener('click', () => {
      way = column === at ? -way : 1;
      column = at;
      heads.forEach(other => other.removeAttribute('aria-sort'));
      head.setAttribute('aria-sort', way > 0 ? 'ascending' : 'descending');
      find();
    });
  });
  search.addEventListener('input', find);
  before.addEventListener('click', () => { read(); first -= PAGE; show(); });
  after.addEventListener('click', () => { read(); first += PAGE; show(); });
  // Whole rows of the wide table, a cell below the other.
  if (box.closest('#rows')) body.addEventListener('click', event => {
    const tr = event.target.closest('tr');
    if (tr.className === 'whole' || getSelection().toString()) return;
    read();
    const below = tr.nextElementSibling;
    if (below && below.className === 'whole') return below.remove();
    const whole = make('tr', {className: 'whole'}), cell = make('td', {colSpan: heads.length}), list = make('dl');
    [...tr.cells].forEach((td, at) => {
      const fact = make('div');
      fact.append(make('dt', {textContent: heads[at].textContent}), make('dd', {textContent: td.textContent}));
      list.append(fact);
    });
    cell.append(list);
    whole.append(cell);
    tr.after(whole);
  });
  if (total > FEW) {
    label.append(search);
    tools.append(label, ' ', count, ' ', before, ' ', after);
    box.before(tools);
    say();
  }
  if (more) {
    more.remove();
    onPaper.push(whole => { read(); show(whole); });
  }
};
document.querySelectorAll('.scroll.table').forEach(serve);

// A part of a timeline by buttons, keys and pointer, and what the rank under the pointer does. Times are in millionths of the whole.
const WHOLE = 1e6, LEAST = 50;
const zoomable = figure => {
  const box = figure.querySelector('.scroll'), lanes = box.querySelector('.lanes'), ticks = [...box.querySelectorAll('.tick')];
  const back = lanes.previousElementSibling, height = lanes.getAttribute('height');
  const tools = make('p', {className: 'tools'}), said = make('span');
  let from = 0, length = WHOLE, held = null;
  const time = part => {
    const ns = part / WHOLE * lanes.dataset.nanoseconds;
    const [unit, name] = [[1e9, 's'], [1e6, 'ms'], [1e3, 'us'], [1, 'ns']].find(([unit]) => ns >= unit) || [1, 'ns'];
    return `${+(ns / unit).toPrecision(5)} ${name}`;
  };
  const show = (begin, size) => {
    length = Math.min(WHOLE, Math.max(size, LEAST));
    from = Math.min(WHOLE - length, Math.max(0, begin));
    lanes.setAttribute('viewBox', `${from} 0 ${length} ${height}`);
    ticks.forEach((tick, at) => { tick.textContent = time(from + length * at / 4); });
    said.textContent = `${time(from)} to ${time(from + length)}`;
  };
  const zoom = (factor, at = from + length / 2) => show(at - (at - from) * factor, length * factor);
  const under = event => { const {left, width} = back.getBoundingClientRect(); return from + (event.clientX - left) / width * length; };
  const acts = {'+': () => zoom(.5), '-': () => zoom(2), ArrowLeft: () => show(from - length / 4, length),
    ArrowRight: () => show(from + length / 4, length), 0: () => show(0, WHOLE)};
  for (const [key, name] of [['+', 'Zoom in'], ['-', 'Zoom out'], ['ArrowLeft', 'Earlier'], ['ArrowRight', 'Later'], ['0', 'Whole']]) {
    const button = make('button', {type: 'button', textContent: name, title: `key ${key.replace('Arrow', '')}`});
    button.addEventListener('click', acts[key]);
    tools.append(button);
  }
  tools.append(said);
  figure.before(tools);
  box.addEventListener('keydown', event => {
    const act = acts[event.key === '=' ? '+' : event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  });
  box.addEventListener('wheel', event => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(event.deltaY < 0 ? .8 : 1.25, under(event));
  }, {passive: false});
  box.addEventListener('dblclick', event => zoom(.5, under(event)));
  box.addEventListener('pointerdown', event => { if (event.pointerType === 'mouse') held = under(event); });
  addEventListener('pointerup', () => { held = null; });
  box.addEventListener('pointermove', event => {
    if (held !== null) return show(from + held - under(event), length);
    const at = under(event), path = event.target.closest('.lanes path');
    const spans = path ? [...path.getAttribute('d').matchAll(/M(\d+) [\d.]+h(\d+)/g)].map(([, begin, size]) => [+begin, +size]) : [];
    const span = spans.find(([begin, size]) => begin <= at && at <= begin + size);
    if (span) said.textContent = `${path.textContent}: ${time(span[1])} from ${time(span[0])}`;
  });
};
document.querySelectorAll('.timeline').forEach(zoomable);

// A link to a folded section opens it.
const unfold = () => {
  if (location.hash.length < 2) return;
  const part = document.querySelector(`#${CSS.escape(location.hash.slice(1))}>.part`);
  if (part) part.open = true;
};
addEventListener('hashchange', unfold);
unfold();

let opened = [];
addEventListener('beforeprint', () => {
  onPaper.forEach(show => show(true));
  opened = [...document.querySelectorAll('details:not([open])')];
  opened.forEach(part => { part.open = true; });
});
addEventListener('afterprint', () => {
  opened.forEach(part => { part.open = false; });
  onPaper.forEach(show => show(false));
});
})();
