// What was taken away comes back. A cancelled booking holds its time again (it may be taken by then: the server says so), a
// longer one gets its end from before.
(() => {
  const S = window.slotserve, { T, fill, call, poll, toast } = S;
  const refused = err => toast(fill(T('Failed'), { why: S.booking?.refusal(err) ?? err.message }), false);

  // `more`: {reason} for somebody else's booking
  async function back(id, more = {}) {
    try {
      const told = await call('POST', `/reservations/${encodeURIComponent(id)}/uncancel`, more);
      toast(T(told.status === 'pending' ? 'Asked' : 'Undone'), true, { text: T('ShowIt'), href: `/bookings/${told.id}` });
      dispatchEvent(new CustomEvent('slotserve:changed'));
      poll();
    } catch (err) { refused(err); }
  }
  async function shorter(b, was) {
    try { await call('PATCH', `/reservations/${encodeURIComponent(b.id)}`, { ends_at: new Date(was).toISOString(), version: b.version }); toast(T('Undone')); } catch (err) { refused(err); }
    poll();
  }
  S.undo = { back, shorter };
})();
