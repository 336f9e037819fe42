// What the booking dialog says: what the server thinks of a wish, what is in the way, the ways out, and what has changed. Nothing
// here keeps anything: each makes boxes of what it is given.
(() => {
  const S = window.slotserve, { $, fill, span, moment, duration } = S, dlg = $('#book-dialog');
  if (!dlg) return;
  const T = name => dlg.dataset[`t${name}`] ?? S.T(name);
  const el = (tag, props = {}, ...inside) => { const x = Object.assign(document.createElement(tag), props); x.append(...inside.filter(Boolean)); return x; };
  const icon = name => el('i', { className: `ic ic-${name}`, ariaHidden: 'true' });
  const option = (value, text) => el('option', { value, textContent: text });
  const note = (kind, name, strong, ...lines) => el('div', { className: `note note--${kind}` }, icon(name), el('div', {}, el('p', {}, el('b', { textContent: strong })), ...lines.filter(Boolean).map(line => typeof line === 'string' ? el('p', { textContent: line }) : line)));
  const camel = code => String(code ?? '').split(/[_-]/).map(w => w.charAt(0).toUpperCase() + w.slice(1)).join('');
  const sentence = text => text ? text.charAt(0).toUpperCase() + text.slice(1).replace(/\.$/, '') : '';
  // a rule in the reader's language where its code is known here, else as the server says it
  const words = p => T(`P${camel(p.code)}`) || sentence(p.message);

  const taken = (list = []) => list.slice(0, 3).map(c => note('bad', 'oct', fill(T(c.maintenance ? 'TakenMaintenance' : c.holder ? 'Taken' : 'TakenByNobody'), { window: span(Date.parse(c.starts_at), Date.parse(c.ends_at)), holder: c.mine ? T('You') : c.holder, status: T(c.running ? 'Running' : camel(c.status)) })));
  function refusal(err) {
    const c = err.told?.conflicts?.[0];
    if (c) return $('b', taken([c])[0]).textContent;
    const p = err.told?.problems?.[0];
    return p ? words(p) : sentence(err.message);
  }
  // the fields of the form that a field of the wish stands in, and what they are called there
  const PLACES = { starts_at: ['start', 'day'], ends_at: ['end'], 'repeat.until': ['until'], participants: ['d-w'] };
  const places = field => (PLACES[field] ?? [field]).map(name => $('form', dlg).elements[name]).filter(x => x?.labels);
  const named = field => places(field)[0]?.labels[0]?.firstChild.textContent.trim() || field;
  // a refusal, a note for each thing that is wrong; and the fields that it is about
  function faults(err) {
    const details = err.told?.error?.details ?? {}, problems = err.told?.problems ?? [];
    const said = p => T(`P${camel(p.code)}`) || (typeof details[p.field] === 'string' ? fill(T('Named'), { field: named(p.field), problem: details[p.field] }) : sentence(p.message));
    return { boxes: problems.length ? problems.map(p => note('bad', 'oct', said(p))) : [note('bad', 'oct', sentence(err.message))], fields: problems.map(p => p.field) };
  }
  function why(s, kind) {
    return [s.online === false && T('Away'), kind === 'model' && (s.reload ? fill(T('Reload'), { time: duration(s.load_seconds) }) : T('NoReload')), s.exceeds_gpu_memory && T('Exceeds'), s.free_until ? fill(T('FreeUntil'), { time: moment(Date.parse(s.free_until)) }) : T('FreeOn')].filter(Boolean).join(' · ');
  }
  const out = (name, bold, told, act) => el('button', { type: 'button', className: 'out', onclick: act }, icon(name), el('span', {}, el('b', { textContent: bold }), el('span', { textContent: told })), icon('right'));
  // three ways out: earlier or later here, shorter, another channel that fits
  function ways(conflicts, suggestions, w, take) {
    const channel = w.body.channel, found = [], at = s => Date.parse(s.starts_at);
    const here = suggestions.filter(s => (s.channel ?? channel) === channel), there = suggestions.filter(s => (s.channel ?? channel) !== channel);
    for (const s of here.slice(0, there.length ? 1 : 2)) found.push(out(at(s) < w.start ? 'early' : 'late', T(at(s) < w.start ? 'Earlier' : 'Later'), `${span(at(s), Date.parse(s.ends_at))} · ${why(s, w.body.kind)}`, () => take({ ...s, channel })));
    const shorter = conflicts.length ? gap(conflicts, w) : null;
    if (shorter) found.push(out('short', T('Shorter'), `${span(...shorter)} · ${fill(T('Less'), { time: duration((w.end - w.start - (shorter[1] - shorter[0])) / 1000) })}`, () => take({ channel, starts_at: new Date(shorter[0]).toISOString(), ends_at: new Date(shorter[1]).toISOString() })));
    for (const s of there.slice(0, 3 - Math.min(found.length, 2))) found.push(out('swap', fill(T('Another'), { channel: s.channel }), `${span(at(s), Date.parse(s.ends_at))} · ${why(s, w.body.kind)}`, () => take(s)));
    return found.length ? [el('div', { className: 'outs' }, ...found)] : [];
  }
  // the longest piece of the wish that is free
  function gap(conflicts, w) {
    let edge = w.from, best = null;
    const busy = conflicts.map(c => [Date.parse(c.starts_at), Date.parse(c.ends_at)]).sort((a, b) => a[0] - b[0]);
    for (const [s, e] of [...busy, [w.end, w.end]]) { if (s - edge >= 9e5 && (!best || s - edge > best[1] - best[0])) best = [edge, s]; edge = Math.max(edge, e); }
    return best;
  }
  // what somebody else has made of a booking meanwhile, beside what stood here
  function changed(was, is) {
    const shown = { When: b => span(Date.parse(b.starts_at), Date.parse(b.ends_at)), Channel: b => b.channel, Model: b => [b.model, b.preset].filter(Boolean).join(':'), Note: b => b.note ?? '', People: b => (b.participant_names ?? []).join(', '), Status: b => T(b.running ? 'Running' : camel(b.status)) };
    const lines = Object.entries(shown).filter(([, read]) => read(was) !== read(is)).map(([name, read]) => el('li', {}, icon('swap'), el('span', { textContent: `${T(`Is${name}`)} ${read(was) || '–'} → ${read(is) || '–'}` })));
    return el('ul', { className: 'facts' }, ...lines);
  }
  function days(told) { // each window of a repeated booking, and what becomes of it
    if (!told.occurrences?.length) return null;
    const bad = told.occurrences.filter(o => o.status === 'skipped' || o.status === 'refused').length;
    const list = el('ul', { className: 'facts' }, ...told.occurrences.slice(0, 12).map(o => el('li', { className: o.status === 'refused' || o.status === 'skipped' ? 'bad' : '' }, icon({ approved: 'check', pending: 'sand', skipped: 'x', refused: 'oct' }[o.status] ?? 'dot'), el('span', { textContent: `${span(Date.parse(o.starts_at), Date.parse(o.ends_at))} · ${T(`O${camel(o.status)}`)}` }))));
    if (told.occurrences.length > 12) list.append(el('li', {}, icon('dots'), el('span', { textContent: fill(T('MoreDays'), { count: told.occurrences.length - 12 }) })));
    return el('details', { open: bad > 0 }, el('summary', { textContent: fill(T('Days'), { count: told.occurrences.length - bad }) }), list);
  }
  S.says = { T, el, icon, option, note, camel, sentence, words, taken, refusal, places, faults, why, out, ways, days, changed };
})();
