// Forms and buttons that call the REST API: `data-api="METHOD /path"` says what, the fields' names make the body.
//   name="policy.max_hours"   a place in the body      data-kind="number|bool|instant|text|list|days"
//   data-empty="null|text"    what an empty field sends (else it is left out)
//   data-confirm="…"          asked first             data-done="…" said after    data-then="reload|goto:/path|none"
// A refusal is shown at the field it names, else in the form's [data-said]; nothing is ever only in a toast.
(() => {
  const { $, $$, T, fill, toast, call, instant, keep, kept } = window.slotserve;
  function value(field) {
    const kind = field.dataset.kind ?? (field.type === 'number' ? 'number' : field.type === 'checkbox' ? 'bool' : field.type === 'datetime-local' ? 'instant' : 'text');
    if (kind === 'bool') return field.checked;
    if (kind === 'list') return field.value.split('\n').map(x => x.trim()).filter(Boolean);
    const text = kind === 'text' ? field.value : field.value.trim();
    if (text === '') return { null: null, text: '' }[field.dataset.empty];
    if (kind === 'number') return Number(text);
    if (kind === 'yes') return text === 'true';
    if (kind === 'instant') { const at = instant(...text.slice(0, 16).split('T'))?.at; return at ? new Date(at).toISOString() : text; }
    if (kind === 'in-days') return new Date(Date.now() + Number(text) * 864e5).toISOString();
    return text;
  }

  function body(form) {
    const made = {};
    for (const field of form.elements) {
      if (!field.name || field.matches(':disabled') || field.type === 'submit') continue;
      if (field.type === 'radio' && !field.checked) continue;
      if ('sends' in field.dataset) made[field.dataset.sends] = true;
      if ('local' in field.dataset) continue; // only steers the form
      if ('many' in field.dataset) { // checkboxes of one name are a list
        const place = field.name.split('.'), last = place.pop();
        const at = place.reduce((o, k) => (o[k] ??= {}), made);
        at[last] ??= [];
        if (field.checked) at[last].push(field.value);
        continue;
      }
      const told = value(field);
      if (told === undefined) continue;
      const place = field.name.split('.'), last = place.pop();
      place.reduce((o, k) => (o[k] ??= {}), made)[last] = told;
    }
    return made;
  }

  function clear(form) {
    for (const field of $$('[aria-invalid]', form)) { field.removeAttribute('aria-invalid'); field.removeAttribute('aria-describedby'); }
    for (const words of $$('.field-said', form)) words.remove();
    const said = $('[data-said]', form);
    if (said) { said.hidden = true; said.replaceChildren(); }
  }

  function refuse(form, err) {
    const details = err.told?.error?.details ?? {};
    let first = null;
    for (const [name, words] of Object.entries(details)) {
      const field = form.elements.namedItem(name);
      const input = field instanceof RadioNodeList ? field[0] : field;
      if (!input || typeof words !== 'string') continue;
      const span = Object.assign(document.createElement('span'), { className: 's bad field-said', id: `said-${name.replace(/\W/g, '-')}`, textContent: words });
      input.setAttribute('aria-invalid', 'true');
      input.setAttribute('aria-describedby', span.id);
      (input.closest('.field') ?? input.parentElement).append(span);
      first ??= input;
    }
    const said = $('[data-said]', form);
    if (!first || !said) show(said, err.message);
    first?.focus();
  }

  function show(said, words, good = false) {
    if (!said) { toast(fill(T('Failed'), { why: words }), good); return; }
    const note = document.createElement('div'), i = document.createElement('i'), p = document.createElement('p'), box = document.createElement('div');
    note.className = `note note--${good ? 'ok' : 'bad'}`;
    i.className = `ic ic-${good ? 'check' : 'oct'}`; i.ariaHidden = 'true';
    p.textContent = words;
    box.append(p); note.append(i, box);
    said.replaceChildren(note);
    said.hidden = false;
  }

  // The question before what cannot be undone: a dialog of the page, with the words of the button that was pressed.
  function sure(words, act, danger = true) {
    const dialog = $('#ask');
    if (!dialog) return Promise.resolve(true);
    $('[data-ask-words]', dialog).textContent = words;
    const yes = $('[data-ask-yes]', dialog);
    yes.textContent = act;
    yes.classList.toggle('btn--danger', danger);
    dialog.returnValue = '';
    dialog.showModal();
    return new Promise(done => dialog.addEventListener('close', () => done(dialog.returnValue === 'yes'), { once: true }));
  }

  function then(el, told) {
    const what = el.dataset.then ?? 'reload', done = el.dataset.done;
    const fresh = new CustomEvent('slotserve:done', { bubbles: true, cancelable: true, detail: told });
    if (!el.dispatchEvent(fresh)) return false;
    if (done) { if (what === 'none') toast(done); else try { sessionStorage.setItem('toast', done); } catch { /* it is only said once less */ } }
    if (what === 'reload') location.reload();
    else if (what.startsWith('goto:')) location.assign(what.slice(5).replace(/\{(\w+)\}/g, (_, k) => encodeURIComponent(told[k] ?? '')));
    return what !== 'none';
  }

  async function run(el, data, form) {
    const [method, path] = el.dataset.api.split(/ (.*)/s);
    const button = el.localName === 'form' ? (document.activeElement?.form === el && document.activeElement.type === 'submit' ? document.activeElement : $('[type=submit]', el)) : el;
    if (el.dataset.confirm && !(await sure(el.dataset.confirm, (button?.dataset.yes ?? button?.textContent ?? '').trim(), !('calm' in el.dataset)))) return;
    if (button) button.disabled = true;
    if (form) clear(form);
    try {
      if (then(el, await call(method, path, data))) return; // the page goes: no second click acts
    } catch (err) {
      if (form) refuse(form, err); else show(el.closest('[data-row]')?.querySelector('[data-said]'), err.message);
    }
    if (button) button.disabled = false;
  }

  addEventListener('submit', e => {
    const form = e.target;
    if (!form.dataset.api) return;
    e.preventDefault();
    if (form.reportValidity()) run(form, body(form), form);
  });
  addEventListener('click', e => {
    const b = e.target.closest?.('button[data-api]');
    if (b && b.type === 'button') run(b, b.dataset.body ? JSON.parse(b.dataset.body) : ['GET', 'DELETE'].includes(b.dataset.api.split(' ')[0]) ? undefined : {}, null);
  });

  // parts of a form that are there for some answers only: data-shown-for="name=value,value"
  function parts_of(form) {
    for (const part of $$('[data-shown-for]', form)) {
      const [name, values] = part.dataset.shownFor.split('='), field = form.elements.namedItem(name);
      const now = field instanceof RadioNodeList ? field.value : field?.type === 'checkbox' ? String(field.checked) : field?.value;
      const shown = values.split(',').includes(now);
      part.hidden = !shown;
      if (part.localName === 'fieldset') part.disabled = !shown;
    }
  }
  for (const form of $$('form')) if ($('[data-shown-for]', form)) parts_of(form);
  addEventListener('change', e => { if (e.target.form) parts_of(e.target.form); });
  addEventListener('change', e => { if ('goto' in e.target.dataset && e.target.value) location.assign(e.target.value); });
  addEventListener('reset', e => setTimeout(() => parts_of(e.target)));

  // on a phone a table's rows become blocks: each figure says which column it is of (the style sheet shows it there)
  function columns() {
    for (const table of $$('.rows-s')) {
      const heads = $$('thead th', table).map(th => ($('.vh', th) ? '' : th.textContent.trim()));
      if (heads.length) for (const row of $$('tbody tr', table)) [...row.children].forEach((td, i) => { if (i > 0 && heads[i] && td.localName === 'td' && !td.dataset.th) td.dataset.th = heads[i]; });
    }
  }
  columns();
  addEventListener('slotserve:parts', columns);

  // rows that are filtered as one types
  addEventListener('input', e => {
    const q = e.target.closest?.('[data-filter-rows]');
    if (!q) return;
    const wanted = q.value.trim().toLowerCase();
    keep('q', q.value.trim());
    let shown = 0;
    for (const row of $$(`${q.dataset.filterRows} [data-row]`)) { row.hidden = wanted !== '' && !row.textContent.toLowerCase().includes(wanted); shown += !row.hidden; }
    const none = $(`${q.dataset.filterRows} [data-none]`);
    if (none) none.hidden = shown > 0;
  });

  for (const q of $$('[data-filter-rows]')) if (kept('q')) { q.value = kept('q'); q.dispatchEvent(new Event('input', { bubbles: true })); }
  try { const said = sessionStorage.getItem('toast'); if (said) { sessionStorage.removeItem('toast'); toast(said); } } catch { /* no storage, no toast */ }
  Object.assign(window.slotserve, { sure, formBody: body, showIn: show, clearForm: clear, refuse });
})();
