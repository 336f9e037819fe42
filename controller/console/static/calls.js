// "How to call it": tabs, and a key that is made on the spot. The key lives in this page alone, and only until it is left.
(() => {
  const { $, $$, T, fill, call, toast } = window.slotserve;
  for (const list of $$('[role=tablist]')) {
    const tabs = $$('[role=tab]', list);
    const pick = t => tabs.forEach(x => { const on = x === t; x.setAttribute('aria-selected', on); x.tabIndex = on ? 0 : -1; document.getElementById(x.getAttribute('aria-controls')).hidden = !on; });
    tabs.forEach((t, i) => {
      t.addEventListener('click', () => pick(t));
      t.addEventListener('keydown', e => { const d = { ArrowRight: 1, ArrowLeft: -1 }[e.key]; if (d) { const n = tabs[(i + d + tabs.length) % tabs.length]; n.focus(); pick(n); e.preventDefault(); } });
    });
  }
  addEventListener('click', async e => {
    const b = e.target.closest?.('[data-make-key]');
    if (!b) return;
    b.disabled = true;
    const box = b.closest('[data-howto]');
    try {
      const made = await call('POST', '/keys', { name: b.dataset.makeKey.slice(0, 100) });
      $('[data-key]', box).textContent = made.secret;
      $('[data-key-made]', box).hidden = false;
      $('[data-key-row]', box).hidden = true;
      for (const pre of $$('#how-curl pre, #how-env pre', box)) pre.textContent = pre.textContent.replace('"Authorization: Bearer $SLOTSERVE_API_KEY"', `"Authorization: Bearer ${made.secret}"`).replace('"$SLOTSERVE_API_KEY"', made.secret);
    } catch (err) { toast(fill(T('Failed'), { why: err.message }), false); b.disabled = false; }
  });
})();
