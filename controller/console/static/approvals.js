// Approvals: one at a time, or several selected; a rejection needs a reason. `x` selects the request in focus, Shift+A
// approves what is selected. The selection outlives a live update.
(() => {
  const { $, $$, T, fill, call, toast, poll, booking } = window.slotserve;
  const bulk = $('[data-bulk]'), reason = $('#why'), said = $('[data-why-said]');
  let chosen = new Set();
  function show() {
    const there = new Set($$('[data-select]').map(b => b.dataset.select));
    chosen = new Set([...chosen].filter(id => there.has(id)));
    for (const b of $$('[data-select]')) { b.checked = chosen.has(b.dataset.select); b.closest('.ap').classList.toggle('is-sel', b.checked); }
    bulk.hidden = chosen.size === 0;
    $('[data-selected]').textContent = fill(T('Selected'), { count: chosen.size });
    $('[data-decide-all=approve]').textContent = fill(T('ApproveN'), { count: chosen.size });
    $('[data-decide-all=reject]').textContent = fill(T('RejectN'), { count: chosen.size });
    said.hidden = true;
  }
  addEventListener('slotserve:parts', show);
  addEventListener('change', e => {
    const b = e.target.closest?.('[data-select]');
    if (!b) return;
    b.checked ? chosen.add(b.dataset.select) : chosen.delete(b.dataset.select);
    show();
  });
  async function decide(ids, approve) {
    if (!approve && !reason.value.trim()) {
      chosen = new Set(ids);
      show();
      said.textContent = T('NeedReason');
      said.hidden = false;
      reason.setAttribute('aria-invalid', 'true');
      reason.focus();
      return;
    }
    reason.removeAttribute('aria-invalid');
    try {
      const told = await call('POST', '/reservations/decide', { ids, approve, reason: reason.value });
      const failed = told.items.filter(i => i.error);
      if (failed.length) toast(fill(T('Failed'), { why: booking.refusal({ told: failed[0], message: failed[0].error.message }) }), false);
      else { toast(fill(T(approve ? 'ApprovedN' : 'RejectedN'), { count: told.decided })); reason.value = ''; }
      chosen = new Set(failed.map(i => i.id));
    } catch (err) { toast(fill(T('Failed'), { why: err.message }), false); }
    show();
    poll();
  }
  addEventListener('click', e => {
    const b = e.target.closest?.('button');
    if (!b) return;
    if (b.dataset.decide) decide([b.dataset.id], b.dataset.decide === 'approve');
    else if (b.dataset.decideAll === 'reject') decide([...chosen], false);
  });
  bulk.addEventListener('submit', e => { e.preventDefault(); decide([...chosen], true); });
  addEventListener('keydown', e => {
    if (e.target.closest?.('input:not([type=checkbox]), textarea, select, dialog') || e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.key === 'x') { const box = $('[data-select]', document.activeElement.closest?.('.ap') ?? $('.ap') ?? document); if (box) { box.click(); box.focus(); } }
    else if (e.key === 'A' && chosen.size) decide([...chosen], true);
  });
  show();
})();
