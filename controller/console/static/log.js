// The runtime log: a window of a few hundred kB of it is in the page, whatever its size. Pieces are fetched by offset as
// one scrolls and dropped on the other side; following appends what is new. Searching is the server's work.
(() => {
  const { $, $$, toast, call, fill, clock } = window.slotserve;
  const root = $('[data-log]');
  if (!root) return;
  const PIECE = 65536, MOST = 8, W = root.dataset;
  const box = $('[data-log-box]', root), select = $('[data-log-select]', root), input = $('[data-log-search]', root), count = $('[data-log-count]', root), followButton = $('[data-log-follow]', root), wrapButton = $('[data-log-wrap]', root), file = $('[data-log-file]', root), said = $('[data-log-state]', root);
  const path = `/channels/${W.channel.split('/').map(encodeURIComponent).join('/')}/log`;
  const encoder = new TextEncoder(), size = text => encoder.encode(text).length;
  let launch = '', pieces = [], ended = false, atEnd = false, first = 0, follow = true, query = '', places = [], place = -1, total = 0, seq = 0, timer = 0, busy = false, quiet = 0;

  // what a terminal would show at last: no colours, no cursor moves, of a progress bar the last state
  // eslint-disable-next-line no-control-regex
  const ESCAPE = /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[PX^_][^\x1b\n]*\x1b\\|[ -/]+[0-~]|[0-OQ-WYZ\\`a-~])/g, CONTROL = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]/g;
  const readable = line => { const states = line.replace(ESCAPE, '').replace(/\r+$/, '').split('\r'); return (states.reverse().find(s => s.trim()) ?? '').replace(CONTROL, ''); };
  const BAD = /\b(error|fatal|critical|exception|traceback|out of memory|failed|abort(ed)?)\b/i, WARN = /\bwarn(ing)?\b/i;

  function filled(span, text) {
    if (!query) { span.textContent = text; return; }
    const low = text.toLowerCase(), wanted = query.toLowerCase(), nodes = [];
    let at = 0;
    for (let found = low.indexOf(wanted); found >= 0; found = low.indexOf(wanted, at)) {
      nodes.push(text.slice(at, found), Object.assign(document.createElement('mark'), { textContent: text.slice(found, found + wanted.length) }));
      at = found + wanted.length;
    }
    span.replaceChildren(...nodes, text.slice(at));
  }
  function line(text, number) {
    const li = document.createElement('li'), i = document.createElement('i'), span = document.createElement('span');
    const shown = readable(text.length > 20000 ? `${text.slice(0, 20000)} …` : text);
    i.textContent = number;
    li.dataset.n = number;
    if (BAD.test(shown)) li.className = 'l-bad'; else if (WARN.test(shown)) li.className = 'l-warn';
    filled(span, shown);
    li.append(i, span);
    return li;
  }
  function render(piece) {
    const lines = piece.text.split('\n');
    if (lines.at(-1) === '') lines.pop();
    piece.el = document.createElement('ol');
    piece.el.append(...lines.map((text, n) => line(text, piece.line + n)));
    piece.lines = lines.length;
  }

  const ask = (offset, limit, lines) => call('GET', `${path}?launch=${encodeURIComponent(launch)}&offset=${offset}&limit=${limit}${lines ? '&lines=1' : ''}`);

  // A piece ends behind a line, so that a line is never cut in two; of a run that goes on the unfinished line waits.
  async function forward(from, number) {
    const told = await ask(from, PIECE, number === undefined);
    let text = told.text, begin = told.offset, no = number ?? told.line;
    if (number === undefined && begin > 0 && begin > first) { const cut = text.indexOf('\n') + 1; if (cut) { begin += size(text.slice(0, cut)); text = text.slice(cut); no += 1; } }
    const cut = text.lastIndexOf('\n') + 1, more = told.next_offset - told.offset >= PIECE - 4;
    let end = told.next_offset;
    ended = told.ended;
    if (cut && (cut < text.length) && (more || !ended)) { end -= size(text.slice(cut)); text = text.slice(0, cut); } else if (!cut && !ended && !more) { text = ''; end = begin; }
    return { from: begin, to: end, text, line: no, done: !more };
  }
  async function backward(to, number) {
    const offset = Math.max(0, to - PIECE), told = await ask(offset, to - offset, false);
    let text = told.text, begin = told.offset;
    if (begin >= to) { first = to; return null; }
    if (offset > 0 && begin === offset) { const cut = text.indexOf('\n') + 1; if (cut && cut < text.length) { begin += size(text.slice(0, cut)); text = text.slice(cut); } } else first = begin;
    const lines = text.split('\n').length - (text.endsWith('\n') ? 1 : 0);
    return { from: begin, to, text, line: number - lines };
  }

  function top() { $('[data-log-top]', root).hidden = !pieces.length || pieces[0].from <= first; }
  function put(piece, where) {
    render(piece);
    if (where === 'end') { pieces.push(piece); box.insertBefore(piece.el, $('[data-log-bottom]', box)); } else { pieces.unshift(piece); $('[data-log-top]', box).after(piece.el); }
  }
  function drop(which) {
    const gone = which === 'first' ? pieces.shift() : pieces.pop(), height = gone.el.offsetHeight;
    gone.el.remove();
    if (which === 'first') box.scrollTop -= height; else atEnd = false;
    return height;
  }

  async function older() {
    if (busy || !pieces.length || pieces[0].from <= first) return;
    busy = true;
    const mine = seq;
    try {
      const piece = await backward(pieces[0].from, pieces[0].line);
      if (mine !== seq || !piece) return;
      put(piece, 'start');
      box.scrollTop += piece.el.offsetHeight;
      if (pieces.length > MOST) drop('last');
    } catch (err) { state('bad', err.message); } finally { busy = false; top(); }
  }
  async function newer() {
    if (busy || !launch || !pieces.length) return; // none while a run is being opened: that is where it goes on from
    busy = true;
    const mine = seq;
    try {
      const last = pieces.at(-1);
      if (ended && atEnd) return;
      const piece = await forward(last.to, last.line + last.lines);
      if (mine !== seq) return;
      atEnd = piece.done;
      state();
      if (!piece.text) return;
      put(piece, 'end');
      // small pieces of a run that is followed grow together, so that the window is counted in bytes
      const before = pieces.at(-2);
      if (before && before.to === piece.from && piece.to - before.from < PIECE) { before.el.append(...piece.el.children); piece.el.remove(); before.text += piece.text; before.to = piece.to; before.lines += piece.lines; pieces.pop(); }
      while (pieces.length > MOST) drop('first');
      if (follow) box.scrollTop = box.scrollHeight;
    } catch (err) { if (mine === seq) state('bad', err.message); } finally { busy = false; top(); }
  }

  function state(kind, words) {
    const bottom = $('[data-log-bottom]', box);
    if (kind) { said.hidden = false; $('p', said).textContent = words; return; }
    said.hidden = true;
    bottom.hidden = !(ended && atEnd);
  }

  function clear() { seq += 1; for (const p of pieces) p.el.remove(); pieces = []; atEnd = false; ended = false; first = 0; box.scrollTop = 0; $('pre', box)?.remove(); }

  async function open(id, how = 'end') {
    clear();
    launch = id;
    select.value = id;
    file.href = `/api/v1${path}/file?launch=${encodeURIComponent(id)}`;
    const mine = seq;
    if (!id) { state('bad', W.tNone); return; }
    try {
      const piece = await forward(how === 'end' ? -PIECE : 0);
      if (mine !== seq) return;
      atEnd = piece.done;
      if (piece.from === 0) first = 0;
      put(piece, 'end');
      state();
      setFollow(how === 'end');
      if (how === 'end') box.scrollTop = box.scrollHeight;
    } catch (err) { if (mine === seq) state('bad', err.status === 403 ? W.tForbidden : err.message); }
    top();
  }

  function setFollow(on) {
    follow = on;
    followButton.setAttribute('aria-pressed', on);
    if (on) { box.scrollTop = box.scrollHeight; clearTimeout(timer); tick(); }
  }

  async function launches() {
    try {
      const { items } = await call('GET', `${path}/launches`);
      const known = [...select.options].map(o => o.value);
      if (items.length && items.map(x => x.id).join() !== known.join()) {
        const was = launch;
        select.replaceChildren(...items.map(x => Object.assign(document.createElement('option'), { value: x.id, textContent: `${clock(Date.parse(x.launched_at), true)} ${x.model}${x.preset ? `:${x.preset}` : ''}${x.failed ? ` (${W.tFailed})` : ''}` })));
        const newest = items[0].id;
        if (newest !== was && (!was || (follow && was === known[0]))) { await open(newest); return; } // a new run: who follows goes along
        select.value = was;
      }
      const shown = items.find(x => x.id === launch);
      if (shown) $('[data-log-size]', root).textContent = shown.size >= 1e6 ? `${(shown.size / 1e6).toFixed(1)} MB` : `${Math.ceil(shown.size / 1000)} kB`;
    } catch { /* the poll that follows says it */ }
  }

  async function tick() {
    clearTimeout(timer);
    if (!document.hidden && launch) {
      if (follow) { if (!(ended && atEnd)) await newer(); }
      if (quiet++ % 4 === 0) await launches();
    } else if (!launch) await launches();
    timer = setTimeout(tick, follow ? 1000 : 4000);
  }

  async function search(step) {
    const wanted = input.value.trim();
    if (wanted !== query) {
      query = wanted;
      places = []; place = -1; total = 0;
      for (const p of pieces) for (const li of $$('li', p.el)) { const span = li.lastElementChild; filled(span, span.textContent); }
      if (!query) { count.textContent = ''; return; }
      try {
        const told = await call('GET', `${path}/find?launch=${encodeURIComponent(launch)}&q=${encodeURIComponent(query)}`);
        if (wanted !== query) return;
        places = told.matches; total = told.count;
      } catch (err) { count.textContent = err.message; return; }
      const seen = firstSeen();
      place = places.findIndex(p => p.line >= seen);
      if (place < 0) place = places.length - 1;
      step = 0;
    }
    if (!places.length) { count.textContent = query ? W.tNoMatch : ''; return; }
    place = (place + step + places.length) % places.length;
    count.textContent = fill(W.tPlace, { n: place + 1, of: total });
    await jump(places[place]);
  }
  const firstSeen = () => { const topLine = box.scrollTop; for (const li of $$('li', box)) if (li.offsetTop - box.offsetTop >= topLine) return Number(li.dataset.n); return 0; };

  async function jump({ offset, line: n }) {
    setFollow(false);
    let li = $(`li[data-n="${n}"]`, box);
    if (!li) {
      const id = launch;
      clear();
      launch = id;
      const mine = seq;
      const piece = await forward(Math.max(0, offset - PIECE / 4));
      if (mine !== seq) return;
      put(piece, 'end');
      for (let tries = 0; tries < 4 && !(li = $(`li[data-n="${n}"]`, box)) && !atEnd; tries++) await (busy ? new Promise(done => setTimeout(done, 50)) : newer());
      state();
      top();
    }
    if (!li) return;
    for (const now of $$('.is-place', box)) now.classList.remove('is-place');
    li.classList.add('is-place');
    box.scrollTop = li.offsetTop - box.offsetTop - box.clientHeight / 3;
  }

  let lastTop = 0;
  box.addEventListener('scroll', () => {
    const up = box.scrollTop < lastTop, rest = box.scrollHeight - box.clientHeight - box.scrollTop;
    lastTop = box.scrollTop;
    if (follow && up && rest > 40) setFollow(false);
    if (box.scrollTop < 400 && up) older();
    if (rest < 600 && !follow && !(ended && atEnd)) newer();
  }, { passive: true });
  select.addEventListener('change', () => { query = ''; input.value = ''; count.textContent = ''; open(select.value); });
  followButton.addEventListener('click', async () => { if (!follow && !atEnd) await open(launch); setFollow(!follow || !atEnd); });
  wrapButton.addEventListener('click', () => { const on = wrapButton.getAttribute('aria-pressed') !== 'true'; wrapButton.setAttribute('aria-pressed', on); box.classList.toggle('is-wrapped', on); });
  input.addEventListener('keydown', e => { if (e.key === 'Enter') { e.preventDefault(); search(e.shiftKey ? -1 : 1); } });
  let typing = 0;
  input.addEventListener('input', () => { clearTimeout(typing); typing = setTimeout(() => search(0), 400); });
  $('[data-log-prev]', root).addEventListener('click', () => search(-1));
  $('[data-log-next]', root).addEventListener('click', () => search(1));
  addEventListener('keydown', e => { if (e.key === 'f' && !e.ctrlKey && !e.metaKey && !e.altKey && !e.target.closest('input, textarea, select')) { e.preventDefault(); followButton.click(); followButton.focus(); } });
  document.addEventListener('click', async e => { // from a failure: the run that failed, at the engine's own first error line
    const link = e.target.closest?.('[data-log-launch]');
    if (!link) return;
    const failed = [...select.options].find(o => o.textContent.endsWith(`(${W.tFailed})`));
    if (failed) { await open(failed.value); input.value = link.closest('.note')?.querySelector('code')?.textContent.trim().slice(0, 200) ?? ''; await search(0); }
  });
  if (W.launch) open(W.launch).then(tick); else { state('none', W.tNone); tick(); }
})();
