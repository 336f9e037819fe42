// The account: a new key (or a webhook's secret) is shown this once; a kind of notice is saved as it is ticked; tests.
(() => {
  const { $, $$, call, toast, showIn, poll } = window.slotserve;

  document.addEventListener('slotserve:done', e => {
    if (e.target.matches('[data-make-key]')) {
      const box = $('[data-new-key]');
      $('#secret').textContent = e.detail.secret;
      $('[data-secret]', box).textContent = e.detail.secret;
      box.hidden = false;
      box.scrollIntoView({ block: 'nearest' });
      e.target.reset();
      e.preventDefault();
    } else if (e.target.matches('[data-add-target]') && e.detail.secret) {
      const box = $('[data-new-secret]');
      $('#hook-secret').textContent = e.detail.secret;
      box.hidden = false;
      box.scrollIntoView({ block: 'nearest' });
      e.target.reset();
      e.preventDefault();
    } else setTimeout(poll, 150);
  });
  addEventListener('click', async e => {
    const b = e.target.closest?.('button');
    if (!b) return;
    if ('kept' in b.dataset) location.reload();
    else if (b.dataset.test) {
      const said = $('[data-said]', b.closest('[data-row]'));
      b.disabled = true;
      said.hidden = true;
      try { const told = await call('POST', b.dataset.test, {}); showIn(said, told.ok ? b.dataset.ok : told.error, told.ok); } catch (err) { showIn(said, err.message); }
      b.disabled = false;
    }
  });
  const table = $('[data-kinds]');
  table?.addEventListener('change', async e => {
    const row = e.target.closest('[data-kind]'), ways = $$('input', row).filter(i => i.checked).map(i => i.value);
    try { await call('PATCH', '/me/notifications', { kinds: { [row.dataset.kind]: ways } }); toast(table.dataset.done); }
    catch (err) { e.target.checked = !e.target.checked; showIn($('[data-said]', table.parentElement), err.message); }
  });
})();
