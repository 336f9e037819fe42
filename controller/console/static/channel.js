// The channel page: presets follow the model, the override's body is put together from its form.
(() => {
  const { $, $$, poll } = window.slotserve;

  function presets(select) {
    const target = document.getElementById(select.dataset.models), was = target.dataset.chosen ?? target.value;
    delete target.dataset.chosen;
    const names = JSON.parse(select.selectedOptions[0]?.dataset.presets ?? '[]');
    target.replaceChildren(target.options[0], ...names.map(n => Object.assign(document.createElement('option'), { value: n, textContent: n })));
    target.value = names.includes(was) ? was : '';
  }
  for (const select of $$('[data-models]')) { presets(select); select.addEventListener('change', () => presets(select)); }

  document.addEventListener('slotserve:done', e => {
    if (e.target.matches('[data-override]')) {
      e.target.reset();
      for (const select of $$('[data-models]', e.target)) presets(select);
      for (const hint of e.detail.hints ?? []) window.slotserve.showIn($('[data-said]', e.target), hint.message, true);
    }
    setTimeout(poll, 150);
  });
})();
