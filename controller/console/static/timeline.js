// The timeline: the server's list a channel, laid out by time on wide windows; the draft of a booking, and the keyboard
// (timeline_drag.js has the pointer). Positions are instants (ms), so that a day of 23 or 25 hours is as long as it is.
(() => {
  const { $, $$, T, fill, now, clock, span, booking } = window.slotserve;
  const tl = $('.tl');
  for (const field of $$('[data-submits]')) field.addEventListener('change', () => field.form.requestSubmit());
  if (!tl) return;
  const from = Number(tl.dataset.from), to = Number(tl.dataset.to), SNAP = Number(tl.dataset.snap) * 6e4;
  const wide = matchMedia('(min-width: 721px)'), minutes = at => String((at - from) / 6e4);

  // ── layout
  const mounted = () => tl.hasAttribute('data-mounted');
  function place(root = tl) {
    for (const el of $$('[data-s]', root)) {
      const s = Number(el.dataset.s), e = Number(el.dataset.e);
      el.style.setProperty('--s', minutes(el.dataset.e ? Math.max(s, from) : s));
      if (!el.dataset.e) continue;
      el.style.setProperty('--e', minutes(Math.min(e, to)));
      const bar = el.firstElementChild, at = now();
      bar.dataset.clip = `${s < from ? 'start' : ''} ${e > to ? 'end' : ''}`.trim();
      // a label stays on one side of the now line
      el.classList.toggle('live-r', s <= at && at < e && at - Math.max(s, from) < Math.min(e, to) - at);
      el.classList.toggle('live-l', s <= at && at < e && at - Math.max(s, from) >= Math.min(e, to) - at);
      if (!bar.title) bar.title = $$('.who, .mn, .when, .tail', bar).filter(x => !x.closest('.mn .mn')).map(x => x.textContent.trim()).filter(Boolean).join(' · ');
    }
    rove();
  }
  function line() {
    const at = Math.min(Math.max(now(), from), to);
    tl.style.setProperty('--now', minutes(at));
    $('.tl-now', tl).hidden = now() < from || now() >= to;
    $('.tl-now span', tl).textContent = clock(now());
  }
  function mount() {
    tl.toggleAttribute('data-mounted', wide.matches && tl.dataset.view !== 'list');
    tl.style.setProperty('--from', 0);
    tl.style.setProperty('--span', (to - from) / 6e4);
    line();
    place();
  }
  wide.addEventListener('change', mount);
  setInterval(() => { line(); if (!shared.drag) place(); }, 30000);
  addEventListener('slotserve:parts', e => {
    for (const name of e.detail) { const part = $(`[data-part="${CSS.escape(name)}"]`, tl); if (part) place(part); }
    if (draft) show(draft);
  });

  // ── what is in the way
  const lanes = () => $$('.tl-row', tl);
  const row = channel => $(`.tl-row[data-channel="${CSS.escape(channel)}"]`, tl);
  const hits = d => $$('.lane > .is-booked', row(d.channel)).filter(li => $('.bar', li).dataset.id !== d.id && !['finished', 'ended_early'].includes($('.bar', li).dataset.status) && Number(li.dataset.s) < d.end && Number(li.dataset.e) > d.start);
  function wrong(d) {
    const hit = hits(d)[0];
    if (hit) return fill(T('Hit'), { window: span(Number(hit.dataset.s), Number(hit.dataset.e)), who: $('.who', hit)?.textContent.trim() ?? '' });
    if (d.mode !== 'end' && d.start < now() - 6e4) return T('Over');
    if (d.end <= now()) return T('Over');
    if (row(d.channel).hasAttribute('data-closed') && d.mode === 'new') return T('Cordoned');
    return '';
  }

  // ── the draft: a new booking, or a booking of one's own where it would come to lie
  let draft = null;
  const li = document.createElement('li'), bar = document.createElement('span');
  li.className = 'is-draft';
  bar.append(document.createElement('b'), document.createElement('span'));
  li.append(bar);
  function show(d) {
    draft = d;
    const lane = row(d.channel) && $('.lane', row(d.channel));
    for (const x of $$('.is-hit', tl)) x.classList.remove('is-hit');
    if (!lane || !mounted()) { li.remove(); return; }
    const why = wrong(d);
    if (li.parentElement !== lane) lane.append(li);
    li.dataset.s = d.start; li.dataset.e = d.end;
    bar.className = `bar ${why || d.refused ? 'k-clash' : 'k-draft'}`;
    bar.firstElementChild.textContent = d.label ?? T('Draft');
    bar.lastElementChild.textContent = span(d.start, d.end);
    for (const x of hits(d)) x.classList.add('is-hit');
    li.style.setProperty('--s', minutes(Math.max(d.start, from)));
    li.style.setProperty('--e', minutes(Math.min(d.end, to)));
    bar.title = why;
  }
  function drop() {
    draft = null;
    li.remove();
    for (const x of $$('.is-hit', tl)) x.classList.remove('is-hit');
  }
  // the dialog says where its booking lies now, and when it is closed
  addEventListener('slotserve:draft', e => { if (e.detail) show({ mode: 'new', ...e.detail }); else if (!shared.drag) drop(); });
  // where an instant lies under a pointer, and on the grid of the timeline
  const at = (x, lane) => { const box = lane.getBoundingClientRect(); return from + (x - box.left) / box.width * (to - from); };
  const snap = t => { const zero = from - from % SNAP; return zero + Math.round((t - zero) / SNAP) * SNAP; };
  const shared = { tl, SNAP, bar, mounted, row, wrong, show, drop, at, snap, draft: () => draft, drag: null };
  window.slotserve.timeline = shared;

  // ── a click on free time: there
  tl.addEventListener('click', e => {
    const band = e.target.closest?.('.lane .bar[data-book]');
    if (!band || !mounted() || !e.detail) return; // from the keyboard: from the band's start (booking.js)
    const from_ = Number(band.parentElement.dataset.s), t = Math.max(snap(at(e.clientX, band.closest('.lane')) - SNAP / 2), from_);
    if (t > now()) band.dataset.at = t; else delete band.dataset.at;
  }, true);

  // ── the keyboard: one stop for Tab, then arrows along a row and between rows
  let stopAt = null;
  function rove() {
    if (!mounted()) { for (const b of $$('.lane .bar', tl)) b.removeAttribute('tabindex'); return; }
    const bars = $$('.lane :is(a, button).bar', tl);
    if (!bars.includes(stopAt)) stopAt = bars.find(b => b.contains(document.activeElement)) ?? bars.find(b => Number(b.parentElement.dataset.e) > now()) ?? bars[0];
    for (const b of bars) b.tabIndex = b === stopAt ? 0 : -1;
  }
  tl.addEventListener('focusin', e => { const b = e.target.closest('.lane .bar'); if (b && mounted()) { stopAt = b; rove(); } });
  tl.addEventListener('keydown', e => {
    const b = e.target.closest?.('.lane .bar'), step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1, Home: -99, End: 99 }[e.key];
    if (!b || !step || !mounted() || e.ctrlKey || e.metaKey || (e.shiftKey && draft)) return;
    e.preventDefault();
    e.stopPropagation();
    if (['ArrowUp', 'ArrowDown'].includes(e.key)) {
      const all = lanes(), mid = (Number(b.parentElement.dataset.s) + Math.min(Number(b.parentElement.dataset.e), to)) / 2;
      for (let i = all.indexOf(b.closest('.tl-row')) + step; i >= 0 && i < all.length; i += step) {
        const bars = $$('.lane :is(a, button).bar', all[i]);
        if (!bars.length) continue;
        const distance = x => Math.max(Number(x.parentElement.dataset.s) - mid, mid - Number(x.parentElement.dataset.e), 0);
        bars.sort((x, y) => distance(x) - distance(y))[0].focus();
        return;
      }
    } else {
      const bars = $$('.lane :is(a, button).bar', b.closest('.tl-row'));
      bars[Math.min(Math.max(bars.indexOf(b) + step, 0), bars.length - 1)].focus();
    }
  });
  addEventListener('keydown', e => { // Shift and arrows move the draft, with Alt its end
    const step = { ArrowLeft: -SNAP, ArrowRight: SNAP }[e.key];
    if (!step || !e.shiftKey || !draft || !booking.shown() || e.target.closest('input:not([type=radio]), textarea, select')) return;
    e.preventDefault();
    const moved = e.altKey ? { ...draft, end: Math.max(draft.end + step, draft.start + SNAP) } : { ...draft, start: draft.start + step, end: draft.end + step };
    booking.set(moved);
  });
  addEventListener('DOMContentLoaded', mount); // when every script of the page is there: what is shown can be used
})();
