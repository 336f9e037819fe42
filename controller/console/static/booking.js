// The booking dialog: a form with editable times in the viewer's zone, checked by the server 300 ms after the last key.
(() => {
  const { $, $$, fill, now, clock, duration, toast, call, poll } = window.slotserve;
  const dlg = $('#book-dialog'), T = name => dlg.dataset[`t${name}`] ?? window.slotserve.T(name), form = $('form', dlg), live = $('#d-live'), zone = document.body.dataset.zone, f = form.elements, submit = $('[data-submit]', dlg);
  let models = null, presets = [], startNow = false, seq = 0, timer = 0, opener = null;

  // wall clock <-> instant in the viewer's zone
  const parts = at => Object.fromEntries(new Intl.DateTimeFormat('en-CA', { timeZone: zone, hourCycle: 'h23', year: 'numeric', month: '2-digit', day: '2-digit', hour: '2-digit', minute: '2-digit', second: '2-digit' }).formatToParts(at).map(p => [p.type, p.value]));
  const day = at => { const p = parts(at); return `${p.year}-${p.month}-${p.day}`; };
  const wall = at => { const p = parts(at); return Date.UTC(p.year, p.month - 1, p.day, p.hour, p.minute, p.second); };
  const instant = (date, time) => {
    const [, h, m] = /^\s*(\d{1,2})[:：.]?(\d{2})\s*$/.exec(time) ?? [];
    const want = Date.parse(`${date}T${(h ?? '').padStart(2, '0')}:${m}:00Z`); // NaN while it is being typed
    if (Number.isNaN(want)) return null;
    const found = [...new Set([-1, 0, 1].map(h => want - (wall(want + h * 864e5) - (want + h * 864e5))))].filter(at => wall(at) === want).sort((a, b) => a - b);
    return { at: found[0] ?? null, twice: found.length > 1 };
  };

  const note = (kind, icon, strong, ...lines) => {
    const box = document.createElement('div'), i = document.createElement('i'), text = document.createElement('div');
    box.className = `note note--${kind}`; i.className = `ic ic-${icon}`; i.ariaHidden = 'true';
    lines.unshift(strong);
    lines.filter(Boolean).forEach((line, n) => { const p = document.createElement('p'), b = document.createElement(n ? 'span' : 'b'); b.textContent = line; p.append(b); text.append(p); });
    box.append(i, text);
    return box;
  };

  const option = (value, text) => Object.assign(document.createElement('option'), { value, textContent: text });
  async function load() {
    if (models) return;
    const all = async path => { const items = []; for (let next = null, first = true; first || next; first = false) { const page = await call('GET', `${path}?limit=1000${next ? `&cursor=${encodeURIComponent(next)}` : ''}`); items.push(...page.items); next = page.next; } return items; };
    let channels;
    [channels, models, presets] = await Promise.all([all('/channels'), all('/models'), all('/presets')]);
    f.channel.replaceChildren(...channels.filter(c => c.phase !== 'gone').map(c => option(`${c.node}/${c.name}`, `${c.node}/${c.name}`)));
  }
  function choices() {
    const node = f.channel.value.split('/')[0], held = m => (m.nodes ?? []).some(n => (n.name ?? n.node ?? n) === node);
    const was = f.model.value, wasPreset = f.preset.value;
    f.model.replaceChildren(...models.filter(held).map(m => option(m.name, m.name)));
    if ([...f.model.options].some(o => o.value === was)) f.model.value = was;
    f.preset.replaceChildren(option('', T('NoPreset')), ...presets.filter(p => p.model === f.model.value).map(p => option(p.name, p.name)));
    if ([...f.preset.options].some(o => o.value === wasPreset)) f.preset.value = wasPreset;
    $('[data-for-model]', dlg).hidden = f.kind.value === 'exclusive';
  }

  function wish() {
    const start = instant(f.day.value, f.start.value);
    if (!start) return { problem: '' };
    if (start.at === null) return { problem: fill(T('NoTime'), { zone }) };
    let end = instant(f.day.value, f.end.value);
    if (end && end.at !== null && end.at <= start.at) end = instant(new Date(Date.parse(`${f.day.value}T00:00Z`) + 864e5).toISOString().slice(0, 10), f.end.value);
    if (!end) return { problem: '' };
    if (end.at === null) return { problem: fill(T('NoTime'), { zone }) };
    const body = { channel: f.channel.value, kind: f.kind.value, starts_at: startNow ? 'now' : new Date(start.at).toISOString(), ends_at: new Date(end.at).toISOString() };
    if (body.kind === 'model') Object.assign(body, { model: f.model.value, preset: f.preset.value || null });
    if (f.note.value) body.note = f.note.value;
    return { body, hint: start.twice || end.twice ? fill(T('Twice'), { zone }) : '' };
  }

  // a problem or hint in the reader's language where its code is known here, else as the server says it
  const camel = code => String(code ?? '').split(/[_-]/).map(w => w.charAt(0).toUpperCase() + w.slice(1)).join('');
  const words = (p, kind = 'P') => { const known = p.code === 'no_reload' && /exclusive/.test(p.message) ? '' : T(kind + camel(p.code)); return known ? fill(known, { seconds: /\d+/.exec(p.message)?.[0] ?? '' }) : p.message ?? String(p); };
  const window_ = (from, to) => `${day(from) === day(now()) ? '' : `${day(from)} `}${clock(from)}–${clock(to)}`;
  const taken = (list = []) => list.slice(0, 3).map(c => note('bad', 'oct', fill(T(c.holder ? 'Taken' : 'TakenByNobody'), { window: window_(Date.parse(c.starts_at), Date.parse(c.ends_at)), holder: c.holder, status: T(c.running ? 'Running' : camel(c.status)) })));
  const why = s => [s.online === false && T('Away'), f.kind.value === 'model' && (s.reload ? fill(T('Reload'), { time: duration(s.load_seconds) }) : T('NoReload')), s.exceeds_gpu_memory && T('Exceeds'), s.free_until ? fill(T('FreeUntil'), { time: window_(Date.parse(s.free_until), Date.parse(s.free_until)).split('–')[0] }) : T('FreeOn')].filter(Boolean).join(' · ');
  function outs(list) {
    const box = document.createElement('div');
    box.className = 'outs';
    for (const s of list.slice(0, 3)) {
      const b = document.createElement('button'), from = Date.parse(s.starts_at), to = Date.parse(s.ends_at);
      b.type = 'button'; b.className = 'out';
      const i = Object.assign(document.createElement('i'), { className: 'ic ic-right', ariaHidden: 'true' }), text = document.createElement('span'), bold = document.createElement('b'), told = document.createElement('span');
      bold.textContent = fill(T('FreeHere'), { channel: s.channel ?? f.channel.value, window: window_(from, to) });
      told.textContent = why(s);
      text.append(bold, told);
      b.append(Object.assign(document.createElement('i'), { className: `ic ic-${s.channel === f.channel.value ? 'clock' : 'swap'}`, ariaHidden: 'true' }), text, i);
      b.addEventListener('click', () => { startNow = false; if (s.channel) f.channel.value = s.channel; f.day.value = day(from); f.start.value = clock(from); f.end.value = clock(to); choices(); check(); });
      box.append(b);
    }
    return box;
  }

  function check() {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const mine = ++seq, { body, problem, hint } = wish();
      if (!body) { live.replaceChildren(...(problem ? [note('bad', 'clock', problem)] : [])); return; }
      try {
        const told = await call('POST', '/reservations/check', body);
        if (mine !== seq) return; // an answer to what stood there before
        submit.textContent = T(told.status === 'pending' ? 'Ask' : 'Book'); // it says what will happen
        if (told.problems?.length) { live.replaceChildren(...taken(told.conflicts), ...told.problems.filter(p => p.code !== 'overlap' || !told.conflicts?.length).map(p => note('bad', 'oct', words(p))), ...(told.suggestions?.length ? [outs(told.suggestions)] : [])); return; }
        const ready = told.ready_at ? fill(T('ReadyAt'), { time: clock(Date.parse(told.ready_at)) }) : '', loads = body.kind === 'model' && told.load_seconds && !(startNow && Date.parse(told.ready_at) < now() + 2000) ? fill(T('Loads'), { time: duration(told.load_seconds) }) : '';
        live.replaceChildren(note('ok', 'check', T('Free'), [ready, loads].filter(Boolean).join(' '), ...(told.hints ?? []).filter(h => h.code !== 'exceeds_gpu_memory').map(h => words(h, 'H')), hint), ...(told.exceeds_gpu_memory ? [note('warn', 'tri', T('Exceeds'))] : []));
      } catch (err) { if (mine === seq) live.replaceChildren(note('bad', 'oct', err.message)); }
    }, 300);
  }

  async function open(button) {
    opener = button;
    startNow = true;
    const at = Math.ceil(now() / 6e4) * 6e4;
    f.day.value = day(at); f.start.value = clock(at); f.end.value = clock(at + 36e5);
    const row = button.dataset.book ? $(`.ch[data-channel="${CSS.escape(button.dataset.book)}"]`) : $('.ch[data-groups~=open]:not(.ch--mine)') ?? $('.ch[data-groups~=ready]');
    live.replaceChildren();
    matchMedia('(min-width: 721px)').matches ? dlg.show() : dlg.showModal();
    (matchMedia('(min-width: 721px)').matches ? f.start : $('#dlg-h')).focus();
    try { await load(); if (row) f.channel.value = row.dataset.channel; choices(); if (row?.dataset.model && [...f.model.options].some(o => o.value === row.dataset.model)) { f.model.value = row.dataset.model; choices(); } check(); } catch (err) { live.replaceChildren(note('bad', 'oct', err.message)); }
  }
  const close = () => { dlg.close(); opener?.isConnected && opener.focus(); };

  addEventListener('click', e => {
    const b = e.target.closest?.('button');
    if (!b) return;
    if ('book' in b.dataset) open(b);
    else if ('close' in b.dataset) close();
    else if ('startNow' in b.dataset) { const at = Math.ceil(now() / 6e4) * 6e4; startNow = true; f.day.value = day(at); f.start.value = clock(at); check(); }
    else if (b.dataset.length) { const start = instant(f.day.value, f.start.value); if (start?.at) { f.end.value = clock(start.at + b.dataset.length * 6e4); check(); } }
  });
  addEventListener('keydown', e => { if (e.key === 'Escape' && dlg.open) close(); });
  addEventListener('keydown', e => { // b = new booking; never while typing
    if (e.key === 'b' && !e.ctrlKey && !e.metaKey && !e.altKey && !dlg.open && !e.target.closest('input, textarea, select')) { e.preventDefault(); open($('.top [data-book]')); }
  });
  if (location.hash === '#book') open($('.top [data-book]'));
  dlg.addEventListener('cancel', e => { e.preventDefault(); close(); });
  form.addEventListener('input', e => { if (['day', 'start'].includes(e.target.name)) startNow = false; if (e.target.name !== 'note') { if (models) choices(); check(); } });
  form.addEventListener('submit', async e => {
    e.preventDefault();
    const { body, problem } = wish(), button = submit;
    if (!body) { live.replaceChildren(note('bad', 'clock', problem)); return; }
    button.disabled = true;
    try {
      const told = await call('POST', '/reservations', body);
      close();
      toast(T(told.status === 'pending' ? 'Asked' : 'Booked'));
      poll();
    } catch (err) {
      seq++;
      live.replaceChildren(...(err.told?.conflicts?.length ? taken(err.told.conflicts) : [note('bad', 'oct', err.message)]), ...(err.told?.suggestions?.length ? [outs(err.told.suggestions)] : []));
    }
    button.disabled = false;
  });
})();
