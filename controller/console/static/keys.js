// Keys for who looks at this all day. None fires while one types; `?` tells them all, and there they can be switched off.
(() => {
  const { $ } = window.slotserve, help = $('#keys');
  const places = { o: '/', t: '/timeline', b: '/bookings', a: '/approvals' };
  const stored = { get: () => { try { return localStorage.getItem('keys'); } catch { return null; } }, set: v => { try { localStorage.setItem('keys', v); } catch { /* as long as the page */ } } };
  const box = $('[data-keys-on]', help);
  box.checked = stored.get() !== 'off';
  box.addEventListener('change', () => stored.set(box.checked ? 'on' : 'off'));
  addEventListener('click', e => { if (e.target.closest?.('[data-keys]')) help.showModal(); });
  let went = -Infinity; // when g was pressed, in ms of the page's own clock: 0 is the moment it was opened, and would be near
  addEventListener('keydown', e => {
    if (e.defaultPrevented || e.ctrlKey || e.metaKey || e.altKey || e.isComposing) return;
    if (e.target.closest?.('input:not([type=checkbox], [type=radio]), textarea, select, [role=tab], dialog:modal')) return;
    if (e.key === '?') { help.showModal(); e.preventDefault(); return; }
    if (!box.checked) return;
    const follows = performance.now() - went < 1500;
    went = -Infinity;
    const link = places[e.key] && follows ? $(`a[href="${places[e.key]}"]`) : null;
    if (link) link.click();
    else if (e.key === 'g') went = performance.now();
    else if (e.key === 'b') window.slotserve.booking.open({}, $('.top [data-book]'));
    else if (e.key === '/') $('[data-filters] select, input[type=search], [data-filter]')?.focus();
    else {
      const pressed = e.shiftKey ? null : $(`[data-press="${CSS.escape(e.key)}"]`);
      if (!pressed) return;
      pressed.click();
    }
    e.preventDefault();
  });
})();
