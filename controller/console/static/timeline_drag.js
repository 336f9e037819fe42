// Dragging on the timeline: over free time to book, one's own bookings and their edges to move them. What is illegal is marked
// while dragging, and the server has the last word: on a refusal the bar snaps back and says why. A finger scrolls; held still
// for a moment it takes hold, as a mouse does at once.
(() => {
  const { $, T, fill, now, span, toast, call, poll, hold, booking, timeline } = window.slotserve;
  if (!timeline) return;
  const { tl, SNAP, bar, mounted, row, wrong, show, drop, at, snap } = timeline;
  const HELD = 450, STILL = 10, HOUR = 36e5; // how long a finger is held (ms), how far it may stray meanwhile (px)
  let drag = null, press = 0;
  const take = d => { drag = timeline.drag = d; };

  const edge = (e, el) => { const x = e.clientX, box = el.getBoundingClientRect(), room = Math.min(e.pointerType === 'touch' ? 24 : 9, box.width / 4); return x - box.left < room ? 'start' : box.right - x < room ? 'end' : ''; };
  function grip(e) { // which part of a bar is under the pointer
    const own = e.target.closest?.('[data-moves]');
    if (!own) return null;
    const side = edge(e, own);
    if (own.dataset.moves === 'end') return side === 'end' ? { own, mode: 'end' } : null;
    return { own, mode: side || 'move' };
  }
  tl.addEventListener('pointermove', e => {
    if (drag || e.pointerType === 'touch' || !mounted()) return;
    const own = e.target.closest?.('[data-moves]'), found = own && grip(e);
    if (own) own.toggleAttribute('data-edge', !!found && found.mode !== 'move');
  });
  tl.addEventListener('pointerdown', e => {
    clearTimeout(press);
    if (!mounted() || e.button !== 0 || !e.isPrimary) return;
    const lane = e.target.closest?.('.lane'), channel = lane?.closest('.tl-row').dataset.channel;
    if (!lane) return;
    const start = at(e.clientX, lane);
    if (e.target.closest('.is-draft')) {
      const draft = timeline.draft();
      take({ ...draft, mode: 'new', how: edge(e, bar) || 'move', grab: start - draft.start });
    } else if (grip(e)) {
      const { own, mode } = grip(e), holder = own.parentElement;
      take({ id: own.dataset.id, version: Number(own.dataset.version), own: holder, channel, mode: mode === 'end' ? 'end' : 'move', how: mode, start: Number(holder.dataset.s), end: Number(holder.dataset.e), grab: start - Number(holder.dataset.s), label: $('.mn', own)?.textContent ?? $('.who', own).textContent, before: { channel, start: Number(holder.dataset.s), end: Number(holder.dataset.e) } });
    } else if (!e.target.closest('.is-booked')) {
      take({ mode: 'new', how: 'new', channel, anchor: start, start, end: start });
    }
    if (!drag) return;
    Object.assign(drag, { x: e.clientX, y: e.clientY, touch: e.pointerType === 'touch' });
    if (drag.touch) press = setTimeout(held, HELD);
  });
  function begin() {
    drag.begun = true;
    hold(true);
    tl.dataset.dragging = drag.how === 'start' || drag.how === 'end' ? 'edge' : 'all';
    drag.own?.classList.add('is-lifted');
  }
  // a finger that was held still: from now on it drags, where it scrolled before; free time is an hour until it moves
  function held() {
    if (!drag) return;
    if (drag.how === 'new') {
      drag.start = Math.max(snap(drag.anchor - SNAP / 2), Math.ceil(now() / 6e4) * 6e4);
      drag.end = drag.start + HOUR;
    }
    begin();
    show(drag);
    navigator.vibrate?.(20);
  }
  addEventListener('touchmove', e => { if (drag?.touch && drag.begun) e.preventDefault(); }, { passive: false });
  tl.addEventListener('contextmenu', e => { if (drag?.touch) e.preventDefault(); }); // what holding a finger means elsewhere
  addEventListener('pointermove', e => {
    if (!drag) return;
    const moved = Math.hypot(e.clientX - drag.x, e.clientY - drag.y);
    if (drag.touch && !drag.begun) { if (moved > STILL) { clearTimeout(press); take(null); } return; } // it scrolls
    if (drag.touch && !drag.strayed && moved < STILL) return;
    drag.strayed = true;
    if (!drag.begun) {
      if (Math.abs(e.clientX - drag.x) < 5) return;
      begin();
    }
    const under = document.elementFromPoint(e.clientX, e.clientY)?.closest?.('.tl-row');
    if (under && drag.how === 'move') drag.channel = under.dataset.channel;
    const lane = $('.lane', row(drag.channel)), t = at(e.clientX, lane);
    const earliest = Math.ceil(now() / 6e4) * 6e4;
    if (drag.how === 'new') {
      const [a, b] = drag.anchor <= t ? [drag.anchor, t] : [t, drag.anchor];
      drag.start = snap(a); drag.end = Math.max(snap(b), drag.start + SNAP);
      if (drag.start < earliest && drag.end > earliest) drag.start = earliest; // from the band that runs now: from now
    } else if (drag.how === 'start') drag.start = Math.min(snap(t), drag.end - SNAP);
    else if (drag.how === 'end') drag.end = Math.max(snap(t), drag.start + SNAP);
    else { const length = drag.end - drag.start; drag.start = snap(t - drag.grab); drag.end = drag.start + length; }
    if (drag.mode === 'new') drag.start = Math.max(drag.start, Math.min(earliest, drag.end - SNAP));
    const box = tl.getBoundingClientRect(); // near the border of the view, go on
    if (e.clientX > box.right - 24) tl.scrollLeft += 16; else if (e.clientX < box.left + 240) tl.scrollLeft -= 16;
    show(drag);
    e.preventDefault();
  });
  addEventListener('pointerup', e => finish(e));
  addEventListener('pointercancel', () => stop());
  addEventListener('keydown', e => { if (e.key === 'Escape' && drag) { stop(); e.stopImmediatePropagation(); } }, true);
  let quiet = false; // the click that ends a drag opens nothing, however late it comes
  addEventListener('click', e => { if (quiet && e.detail && tl.contains(e.target)) { e.preventDefault(); e.stopPropagation(); } quiet = false; }, true);
  addEventListener('pointerdown', () => { quiet = false; }, true);
  tl.addEventListener('dragstart', e => e.preventDefault());

  function stop() {
    const d = drag;
    clearTimeout(press);
    take(null);
    delete tl.dataset.dragging;
    hold(false);
    d?.own?.classList.remove('is-lifted');
    if (d?.mode === 'new' && booking.shown()) booking.set(d); else drop();
    return d;
  }
  async function finish(e) {
    clearTimeout(press);
    if (!drag?.begun) { take(null); return; }
    quiet = true;
    const d = drag;
    if (d.mode === 'new') {
      take(null);
      delete tl.dataset.dragging;
      hold(false);
      if (booking.shown()) booking.set(d); else booking.open({ channel: d.channel, start: d.start, end: d.end }, tl);
      return;
    }
    const why = wrong(d);
    stop();
    const same = d.before.channel === d.channel && d.before.start === d.start && d.before.end === d.end;
    if (same) return;
    if (why) { toast(fill(T('Snapped'), { why }), false); return; }
    await move(d, d.before, d.version);
  }
  // absolute times and the version that was seen: what changed meanwhile is not overwritten
  async function move(d, before, version) {
    const body = { version };
    if (d.start !== before.start) body.starts_at = new Date(d.start).toISOString();
    if (d.end !== before.end) body.ends_at = new Date(d.end).toISOString();
    if (d.channel !== before.channel) body.channel = d.channel;
    try {
      const told = await call('PATCH', `/reservations/${encodeURIComponent(d.id)}`, body);
      toast(fill(T('Moved'), { window: span(Date.parse(told.starts_at), Date.parse(told.ends_at)) }), true, { text: T('Undo'), act: () => move({ id: d.id, ...before }, d, told.version) });
    } catch (err) { toast(fill(T('Snapped'), { why: booking.refusal(err) }), false); }
    poll();
  }
})();
