// The booking dialog: a new booking or a change of one, by form; dragging fills it in. Times are in the viewer's zone; what
// stands there is checked by the server 300 ms after the last key, and every "no" carries its ways out.
(() => {
  const S = window.slotserve, { $, $$, fill, now, clock, day, instant, next, span, moment, duration, toast, call, poll } = S;
  const dlg = $('#book-dialog');
  if (!dlg) return;
  const { T, el, icon, option, note, camel, sentence, words, taken, refusal, places, faults, why, out, ways, days, changed } = S.says;
  const form = $('form', dlg), f = form.elements, live = $('#d-live', dlg), submit = $('[data-submit]', dlg), head = $('#dlg-h', dlg), policy = $('[data-policy]', dlg), zone = S.zone;
  const wide = matchMedia('(min-width: 721px)'), admin = document.body.dataset.role === 'admin';
  let lists = null, startNow = false, seq = 0, timer = 0, opener = null, editing = null, refusedNow = false;

  // ── what can be chosen
  const all = async path => { const items = []; for (let next = null, first = true; first || next; first = false) { const page = await call('GET', `${path}?limit=1000${next ? `&cursor=${encodeURIComponent(next)}` : ''}`); items.push(...page.items); next = page.next; } return items; };
  async function load() {
    if (lists) return;
    const [channels, models, presets, people] = await Promise.all(['/channels', '/models', '/presets', '/users'].map(all));
    lists = { channels: channels.filter(c => c.phase !== 'gone'), models, presets, people: people.filter(p => !p.disabled) };
    const gb = bytes => bytes ? ` · ${Math.round(bytes / 1e9)} GB` : '';
    f.channel.replaceChildren(...lists.channels.map(c => option(c.id, `${c.id}${c.gpus[0]?.name ? ` · ${c.gpus.length > 1 ? `${c.gpus.length} × ` : ''}${c.gpus[0].name}` : ''}${gb(c.gpu_memory_bytes)}`)));
    $('#d-people', dlg).replaceChildren(...lists.people.filter(p => p.id !== document.body.dataset.me).map(p => option(p.name, '')));
    if (f.holder) f.holder.replaceChildren(option('', T('Myself')), ...lists.people.filter(p => p.id !== document.body.dataset.me).map(p => option(p.id, p.name)));
  }
  function choices() {
    const kind = f.kind.value, channel = f.channel.value;
    const there = lists.models.filter(m => (m.channels ?? []).includes(channel) && (m.engines_by_channel?.[channel] ?? [1]).length);
    const was = f.model.value, had = f.preset.value;
    f.model.replaceChildren(...there.map(m => option(m.name, m.exceeds_gpu_memory?.[channel] ? fill(T('ExceedsName'), { model: m.name }) : m.name)));
    if (there.some(m => m.name === was)) f.model.value = was;
    else { const c = lists.channels.find(c => c.id === channel); if (there.some(m => m.name === c?.default_model)) f.model.value = c.default_model; }
    f.preset.replaceChildren(option('', T('NoPreset')), ...lists.presets.filter(p => p.model === f.model.value).map(p => option(p.name, p.name)));
    if ([...f.preset.options].some(o => o.value === had)) f.preset.value = had;
    for (const x of $$('[data-for]', dlg)) x.hidden = !x.dataset.for.split(' ').includes(kind) || (editing !== null && 'onlyNew' in x.dataset);
    const repeat = f.repeat?.value ?? '';
    for (const x of $$('[data-for-repeat]', dlg)) x.hidden = !repeat;
    for (const x of $$('[data-for-week]', dlg)) x.hidden = repeat !== 'week';
    $('[data-for-reason]', dlg).hidden = !(kind === 'maintenance' && f.clear?.checked) && !(editing && !editing.mine);
  }

  const guests = S.people(dlg, () => lists?.people ?? [], () => check());

  // ── the wish that the form stands for
  function wish() {
    const start = instant(f.day.value, f.start.value);
    if (!start) return { problem: '' };
    if (start.at === null) return { problem: fill(T('NoTime'), { zone }) };
    let end = instant(f['end-day'].value || f.day.value, f.end.value);
    if (end && end.at !== null && end.at <= start.at && !f['end-day'].value) end = instant(next(f.day.value), f.end.value);
    if (!end) return { problem: '' };
    if (end.at === null) return { problem: fill(T('NoTime'), { zone }) };
    if (f.start.value.trim() === f.end.value.trim() && (f['end-day'].value || f.day.value) === f.day.value) return { problem: T('NoLength'), fields: ['ends_at'] };
    const kind = f.kind.value;
    const body = { channel: f.channel.value, kind: kind === 'model' ? 'model' : 'exclusive', starts_at: startNow ? 'now' : new Date(start.at).toISOString(), ends_at: new Date(end.at).toISOString() };
    if (kind === 'model') Object.assign(body, { model: f.model.value, preset: f.preset.value || null });
    if (kind === 'maintenance') Object.assign(body, { maintenance: true, clear_conflicts: f.clear.checked, ...(f.clear.checked ? { reason: f.reason.value } : {}) });
    if (f.note.value || editing) body.note = f.note.value;
    if (kind !== 'maintenance' && (guests.names().length || editing)) body.participants = guests.names();
    if (f.holder?.value && !editing && kind !== 'maintenance') body.holder = f.holder.value;
    if (f.repeat?.value && !editing) {
      const days = $$('[name=on]:checked', form).map(x => x.value);
      body.repeat = { every: f.repeat.value, zone, on_conflict: f.skip.checked ? 'skip' : 'refuse', ...(f.until.value ? { until: f.until.value } : { count: 4 }), ...(f.repeat.value === 'week' && days.length ? { days } : {}) };
    }
    return { body, start: start.at, end: end.at, from: startNow ? now() : start.at, hint: start.twice || end.twice ? fill(T('Twice'), { zone }) : '' };
  }
  function put(start, end) {
    f.day.value = day(start);
    f.start.value = clock(start);
    f.end.value = clock(end);
    const plain = instant(f.day.value, f.end.value), rolled = instant(next(f.day.value), f.end.value);
    f['end-day'].value = plain?.at === end || (rolled?.at === end && plain?.at < start) ? '' : day(end);
    $('[data-end-day]', dlg).hidden = !f['end-day'].value;
  }
  const announce = (w = wish()) => dispatchEvent(new CustomEvent('slotserve:draft', { detail: dlg.open && w.body ? { channel: w.body.channel, start: startNow ? now() : w.start, end: w.end, id: editing?.id, refused: refusedNow } : null }));

  // ── what the server says of it
  const take = s => { startNow = false; if (s.channel) { f.channel.value = s.channel; choices(); } put(Date.parse(s.starts_at), Date.parse(s.ends_at)); check(); f.start.focus(); };
  function say(...boxes) { live.replaceChildren(...boxes.flat().filter(Boolean)); }
  // what is wrong is marked where it was typed
  function allow(yes, fields = []) {
    refusedNow = !yes;
    const marked = new Set(fields.flatMap(places));
    for (const x of form.elements) if (marked.has(x)) x.setAttribute('aria-invalid', 'true'); else x.removeAttribute('aria-invalid');
    submit.setAttribute('aria-disabled', yes ? 'false' : 'true');
    submit.title = yes ? '' : T('NotPossible');
  }
  function told(t, w) {
    const pending = t.status === 'pending';
    submit.textContent = T(editing ? 'Save' : pending ? 'Ask' : 'Book'); // it says what will happen
    policy.replaceChildren(...(t.policy?.length ? [document.createTextNode(t.policy.map(p => p.message).join(T('Comma')))] : []));
    const problems = t.problems ?? [], past = problems.find(p => p.code === 'in_the_past' && p.field === 'starts_at');
    const late = t.conflicts?.length && Date.parse(t.conflicts[0].starts_at) > w.start; // it runs into one: its end is too late
    allow(!problems.length, problems.map(p => p.code !== 'overlap' ? p.field : late ? 'ends_at' : 'start'));
    if (past) { say(el('div', { className: 'note note--bad' }, icon('clock'), el('div', {}, el('p', {}, el('b', { textContent: fill(T('PastAt'), { time: clock(w.start) }) })), el('div', { className: 'row' }, el('button', { type: 'button', className: 'btn btn--s', textContent: fill(T('StartNowAt'), { time: clock(now()) }), onclick: begin }))))); return; }
    if (problems.length) {
      say(taken(t.conflicts), problems.filter(p => p.code !== 'overlap' || !t.conflicts?.length).map(p => note('bad', 'oct', words(p))), days(t), t.occurrences?.length ? null : ways(t.conflicts ?? [], t.suggestions ?? [], w, take));
      return;
    }
    const ready = t.ready_at && w.body.kind === 'model' ? fill(T('ReadyAt'), { time: moment(Date.parse(t.ready_at)) }) : '';
    const loads = w.body.kind === 'model' && t.load_seconds && !(startNow && Date.parse(t.ready_at) < now() + 2000) ? fill(T('Loads'), { time: duration(t.load_seconds) }) : '';
    const hints = (t.hints ?? []).filter(h => !['exceeds_gpu_memory', 'needs_approval'].includes(h.code)).map(h => T(`H${camel(h.code)}`) ? fill(T(`H${camel(h.code)}`), { seconds: /\d+/.exec(h.message)?.[0] ?? '' }) : h.message);
    const cleared = w.body.maintenance && t.conflicts?.length ? [note('warn', 'tri', fill(T('Cleared'), { count: t.conflicts.length }), ...t.conflicts.map(c => `${span(Date.parse(c.starts_at), Date.parse(c.ends_at))} ${c.holder ?? ''}`))] : [];
    say(pending ? note('info', 'sand', T('NeedsApproval'), T('HeldMeanwhile'), [ready, loads].filter(Boolean).join(' ')) : note('ok', 'check', T('Free'), [ready, loads].filter(Boolean).join(' '), ...hints, w.hint), cleared, days(t), t.exceeds_gpu_memory ? note('warn', 'tri', T('Exceeds'), T('ExceedsBut')) : null);
  }
  function check() {
    clearTimeout(timer);
    announce();
    timer = setTimeout(async () => {
      const mine = ++seq, w = wish();
      if (!w.body) { if (w.problem) { allow(false, w.fields ?? ['starts_at', 'ends_at']); say(note('bad', 'clock', w.problem)); } else { allow(true); say(); } return; }
      try {
        const t = await call('POST', '/reservations/check', { ...w.body, ...(editing ? { replaces: editing.id } : {}) });
        if (mine !== seq || !dlg.open) return; // an answer to what stood there before
        told(t, w);
      } catch (err) { if (mine === seq) { const { boxes, fields } = faults(err); allow(!fields.length, fields); say(boxes); } }
      announce();
    }, 300);
  }
  async function find() { // the nearest free times for what the form asks for, anywhere
    const w = wish(), mine = ++seq;
    if (!w.body) return;
    clearTimeout(timer);
    say(note('info', 'search', T('Checking')));
    const q = new URLSearchParams({ minutes: Math.round((w.end - w.start) / 6e4), after: new Date(Math.max(w.start, now())).toISOString(), limit: 6, ...(w.body.kind === 'model' ? { model: w.body.model } : { kind: 'exclusive' }), ...(w.body.preset ? { preset: w.body.preset } : {}) });
    try {
      const { items } = await call('GET', `/slots?${q}`);
      if (mine !== seq) return;
      say(items.length ? el('div', { className: 'outs', role: 'group', ariaLabel: T('Nearest') }, el('p', { className: 'hint', textContent: T('Nearest') }), ...items.map(s => out('clock', fill(T('FreeHere'), { channel: s.channel, window: span(Date.parse(s.starts_at), Date.parse(s.ends_at)) }), why(s, w.body.kind), () => take(s)))) : note('warn', 'tri', T('NoFree')));
    } catch (err) { say(note('bad', 'oct', sentence(err.message))); }
  }
  function begin() {
    const w = wish(), at = Math.ceil(now() / 6e4) * 6e4;
    startNow = true;
    const end = w.body && w.end > at + 3e5 ? w.end : at + 36e5;
    put(at, end);
    check();
  }

  // somebody has changed it meanwhile: what they changed, and the choice between theirs and what stands here
  async function stale() {
    try {
      const is = await call('GET', `/reservations/${encodeURIComponent(editing.id)}`), was = editing;
      editing = is;
      say(note('warn', 'swap', T('ChangedMeanwhile'), changed(was, is), el('div', { className: 'row' }, el('button', { type: 'button', className: 'btn btn--s', textContent: T('TakeTheirs'), onclick: () => edit(is.id, opener) }), el('span', { className: 's t2', textContent: T('OrSave') }))));
      return true;
    } catch { return false; }
  }

  // ── opening and closing
  function reset(title) {
    editing = null; guests.set([]); seq++; startNow = false;
    form.reset();
    head.textContent = title;
    say();
    policy.replaceChildren();
    for (const x of [f.channel, f.day, f.start, ...form.querySelectorAll('[name=kind]')]) x.disabled = false;
    allow(true);
  }
  function appear() {
    if (!dlg.open) wide.matches ? dlg.show() : dlg.showModal();
    (wide.matches ? f.start.disabled ? f.end : f.start : head).focus();
  }
  async function open({ channel = '', start = null, end = null, model = '', preset = '', searching = false } = {}, button = null) {
    opener = button ?? document.activeElement;
    reset(T('New'));
    const at = Math.ceil(now() / 6e4) * 6e4;
    startNow = start === null || start <= now() + 1000;
    put(start !== null && !startNow ? start : at, end ?? (startNow ? at : start) + 36e5);
    appear();
    try {
      await load();
      const best = channel || (lists.channels.find(c => c.phase === 'ready' && !c.booking && !c.cordoned && c.online) ?? lists.channels[0])?.id || '';
      f.channel.value = best;
      const shown = lists.channels.find(c => c.id === best);
      choices();
      for (const wished of [model, shown?.running?.model]) if (wished && [...f.model.options].some(o => o.value === wished)) { f.model.value = wished; choices(); break; }
      if (preset && [...f.preset.options].some(o => o.value === preset)) f.preset.value = preset;
      if (!f.until.value) f.until.value = day(now() + 4 * 7 * 864e5);
      searching ? find() : check();
    } catch (err) { say(note('bad', 'oct', err.message)); }
  }
  async function edit(id, button = null) {
    opener = button ?? document.activeElement;
    reset(T('Change'));
    appear();
    try {
      const [b] = await Promise.all([call('GET', `/reservations/${encodeURIComponent(id)}`), load()]);
      editing = b;
      head.textContent = fill(T('ChangeOf'), { channel: b.channel });
      f.kind.value = b.maintenance ? 'maintenance' : b.kind;
      f.channel.value = b.channel;
      put(Date.parse(b.starts_at), Date.parse(b.ends_at));
      choices();
      f.model.value = b.model ?? ''; choices(); f.preset.value = b.preset ?? '';
      f.note.value = b.note ?? '';
      guests.set((b.participant_names ?? []).filter(Boolean));
      const begun = Date.parse(b.starts_at) <= now(); // then only its end, its note and its people can be changed
      for (const x of [f.channel, f.day, f.start, ...form.querySelectorAll('[name=kind]')]) x.disabled = begun;
      for (const x of form.querySelectorAll('[name=kind]')) x.disabled = true;
      submit.textContent = T('Save');
      check();
      if (begun) f.end.focus();
    } catch (err) { say(note('bad', 'oct', sentence(err.message))); }
  }
  function close() {
    dlg.close();
    seq++;
    editing = null;
    dispatchEvent(new CustomEvent('slotserve:draft', { detail: null }));
    if (opener?.isConnected) opener.focus({ preventScroll: true });
  }
  S.booking = {
    open, edit, refusal,
    shown: () => dlg.open,
    set: d => { startNow = false; if (d.channel && d.channel !== f.channel.value) { f.channel.value = d.channel; choices(); } put(d.start, d.end); check(); },
  };

  addEventListener('click', e => {
    const b = e.target.closest?.('button, a');
    if (!b) return;
    const d = b.dataset;
    if ('book' in d) open({ channel: d.book, start: d.at ? Number(d.at) : null, end: d.at && d.to ? Math.min(Number(d.to), Number(d.at) + 36e5) : null, model: d.model ?? '', preset: d.preset ?? '', searching: 'find' in d }, b);
    else if ('edit' in d) edit(d.edit, b);
    else if (!dlg.contains(b)) return;
    else if ('close' in d) close();
    else if ('startNow' in d) begin();
    else if ('search' in d) find();
    else if ('endDay' in d) { $('[data-end-day]', dlg).hidden = false; f['end-day'].value ||= f.day.value; f['end-day'].focus(); }
    else if (d.length) { const w = instant(f.day.value, f.start.value); if (w?.at) { put(w.at, w.at + d.length * 6e4); check(); } }
    else if ('till' in d) { const w = instant(f.day.value, f.start.value), [h, m] = d.till.split(':'); if (w?.at) { let end = instant(f.day.value, `${h}:${m}`); if (end.at <= w.at) end = instant(next(f.day.value), `${h}:${m}`); put(w.at, end.at); check(); } }
    else return;
    e.preventDefault();
  });
  addEventListener('keydown', e => { if (e.key === 'Escape' && dlg.open && !e.defaultPrevented) close(); });
  dlg.addEventListener('cancel', e => { e.preventDefault(); close(); });
  form.addEventListener('input', e => {
    const name = e.target.name;
    if (['day', 'start'].includes(name)) startNow = false;
    if (['note', 'reason', ''].includes(name) && !refusedNow) return;
    if (lists) choices();
    check();
  });
  form.addEventListener('submit', async e => {
    e.preventDefault();
    guests.finish();
    const w = wish();
    if (!w.body) { say(note('bad', 'clock', w.problem || T('TimeMissing'))); f.start.focus(); return; }
    if (submit.getAttribute('aria-disabled') === 'true' && seq) { live.firstElementChild?.scrollIntoView({ block: 'nearest' }); return; }
    submit.disabled = true;
    try {
      if (editing) {
        const { starts_at, ...rest } = w.body, body = { version: editing.version, ...rest, ...(Date.parse(editing.starts_at) !== w.start ? { starts_at } : {}), ...(f.reason.value ? { reason: f.reason.value } : {}) };
        delete body.maintenance; delete body.clear_conflicts;
        if (Date.parse(editing.starts_at) <= now()) { delete body.channel; delete body.kind; }
        if (body.kind === 'exclusive' || editing.kind === 'exclusive') { delete body.model; delete body.preset; delete body.kind; }
        await call('PATCH', `/reservations/${encodeURIComponent(editing.id)}`, body);
        close();
        dispatchEvent(new CustomEvent('slotserve:saved'));
        toast(T('Saved'));
        dispatchEvent(new CustomEvent('slotserve:changed'));
      } else {
        const made = await call('POST', '/reservations', w.body);
        close();
        dispatchEvent(new CustomEvent('slotserve:saved'));
        toast(T(made.series ? 'BookedSeries' : made.status === 'pending' ? 'Asked' : 'Booked'), true, { text: T(made.kind === 'model' && made.status !== 'pending' ? 'HowTo' : 'ShowIt'), href: `/bookings/${made.id}` });
      }
      poll();
    } catch (err) {
      seq++;
      if (editing && err.told?.error?.details?.version && await stale()) { submit.disabled = false; return; }
      const { boxes, fields } = faults(err);
      allow(!err.told?.conflicts?.length, fields);
      fields.flatMap(places)[0]?.focus();
      say(err.told?.conflicts?.length ? taken(err.told.conflicts) : boxes, ways(err.told?.conflicts ?? [], err.told?.suggestions ?? [], w, take));
      announce();
    }
    submit.disabled = false;
  });
  const asked = new URLSearchParams(location.hash.slice(1));
  if (asked.has('book')) open({ channel: asked.get('book') || '', model: asked.get('model') ?? '', preset: asked.get('preset') ?? '', start: asked.get('at') ? Date.parse(asked.get('at')) : null }, $('.top [data-book]'));
})();
