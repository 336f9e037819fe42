// Administration: a node's join command is shown once, a role is saved as it is chosen, disabling says first what it does.
(() => {
  const { $, $$, fill, call, toast, sure, showIn, instant, moment } = window.slotserve;

  function joined(told) {
    const box = $('[data-joined]');
    $('#join').textContent = `slotserve-agent enrol ${told.join}`;
    box.hidden = false;
    box.scrollIntoView({ block: 'nearest' });
  }
  document.addEventListener('slotserve:done', e => { if (e.target.matches('[data-add-node]')) { joined(e.detail); e.target.reset(); } else if (e.target.matches('[data-make-wall]')) { $('#wall-url').textContent = e.detail.url; $('[data-wall-open]').href = e.detail.url; $('[data-new-wall]').hidden = false; e.target.reset(); } });
  document.addEventListener('click', async e => {
    const b = e.target.closest?.('button');
    if (!b) return;
    if (b.dataset.join) {
      b.disabled = true;
      try { joined(await call('POST', '/nodes', { name: b.dataset.join })); } catch (err) { showIn($('[data-said]', b.closest('[data-row]')), err.message); }
      b.disabled = false;
    } else if ('reload' in b.dataset) location.reload();
    else if (b.dataset.disable) {
      const words = $('[data-disable-words]').dataset, said = $(':scope > [data-said]', b.parentElement), id = encodeURIComponent(b.dataset.disable);
      b.disabled = true;
      try {
        const told = await call('PATCH', `/users/${id}?preview=1`, { disabled: true });
        const named = list => (list.length ? list.map(x => x.channel).join(', ') : '0');
        if (await sure(fill(words.words, { name: b.dataset.name, keys: told.keys, ends: named(told.ends), cancels: named(told.cancels) }), words.yes)) {
          await call('PATCH', `/users/${id}`, { disabled: true });
          try { sessionStorage.setItem('toast', words.done); } catch { /* it is only said once less */ }
          location.reload();
        }
      } catch (err) { showIn(said, err.message); }
      b.disabled = false;
    }
  });
  for (const form of $$('[data-drain]')) { // what maintenance would touch, before it is set
    form.elements.drain_until.addEventListener('change', async () => {
      const at = instant(...form.elements.drain_until.value.split('T'))?.at, box = $('[data-preview]', form), W = form.dataset;
      box.textContent = '';
      if (!at) return;
      try {
        const told = await call('GET', `/nodes/${encodeURIComponent(W.drain)}/drain-preview?until=${new Date(at).toISOString()}`);
        const list = told.touched.map(b => `${b.channel} ${moment(Date.parse(b.starts_at))}${b.holder ? ` (${b.holder})` : ''}`).join(', ');
        box.textContent = [told.running.length ? fill(W.tRunning, { time: moment(Date.parse(told.idle_at)) }) : '', list ? fill(W.tTouched, { list }) : W.tNone].filter(Boolean).join(' ');
      } catch (err) { box.textContent = err.message; }
    });
  }
  for (const select of $$('[data-patch]')) {
    select.addEventListener('change', async () => {
      select.disabled = true;
      try { await call('PATCH', select.dataset.patch, { [select.dataset.name]: select.value }); select.dataset.was = select.value; toast(select.dataset.done); }
      catch (err) { select.value = select.dataset.was; showIn($('.acts > [data-said]', select.closest('[data-row]')), err.message); }
      select.disabled = false;
      select.focus();
    });
  }
})();
