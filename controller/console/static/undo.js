// What was taken away comes back. A cancelled booking is booked anew as it was (its time may be taken by then: the server says
// so), a longer one gets its end from before.
(() => {
  const S = window.slotserve, { T, fill, now, call, poll, toast } = S;
  const refused = err => toast(fill(T('Failed'), { why: S.booking?.refusal(err) ?? err.message }), false);

  // `b`: the booking as it was, as the server told it
  async function again(b) {
    const { channel, kind, model, preset, ends_at, maintenance, mine, holder_id } = b;
    const body = { channel, kind, model, preset, ends_at, starts_at: Date.parse(b.starts_at) <= now() ? 'now' : b.starts_at };
    if (kind === 'exclusive') { delete body.model; delete body.preset; }
    if (maintenance) body.maintenance = true;
    else Object.assign(body, b.participants?.length ? { participants: b.participants } : {}, mine ? {} : { holder: holder_id });
    if (b.note) body.note = b.note;
    try {
      const made = await call('POST', '/reservations', body);
      toast(T(made.status === 'pending' ? 'Asked' : 'Booked'), true, { text: T('ShowIt'), href: `/bookings/${made.id}` });
      dispatchEvent(new CustomEvent('slotserve:changed'));
      poll();
      return made;
    } catch (err) { refused(err); return null; }
  }
  async function shorter(b, was) {
    try { await call('PATCH', `/reservations/${encodeURIComponent(b.id)}`, { ends_at: new Date(was).toISOString(), version: b.version }); toast(T('Undone')); } catch (err) { refused(err); }
    poll();
  }
  S.undo = { again, shorter };
})();
