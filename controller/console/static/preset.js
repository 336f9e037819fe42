// The editor of a preset: what the engine would be started with is asked 300 ms after the last key; stale answers are
// dropped. What is found can be removed or mended with one button.
(() => {
  const { $, $$, fill, call, toast, refuse, clearForm, showIn } = window.slotserve;
  const form = $('[data-preset]');
  if (!form) return;
  const f = form.elements, W = form.dataset, envBox = $('[data-env]', form), cmd = $('[data-cmd]', form), finds = $('[data-finds]', form), why = $('[data-why]', form), readonly = 'readonly' in W;
  const admin = document.body.dataset.role === 'admin';
  let seq = 0, timer = 0;
  const make = (tag, props = {}, ...inner) => { const el = Object.assign(document.createElement(tag), props); el.append(...inner); return el; };

  function variable(name = '', value = '') {
    const row = make('div', { className: 'row' }), n = make('input', { className: 'input mono', value: name, ariaLabel: W.tName, placeholder: 'NAME' }), v = make('input', { className: 'input mono', value: value ?? '', ariaLabel: W.tValue, placeholder: value === null ? W.tHidden : '' });
    const x = make('button', { className: 'btn btn--ghost btn--icon', type: 'button', ariaLabel: `${W.tDelete} ${name}` }, make('i', { className: 'ic ic-x', ariaHidden: 'true' }));
    n.dataset.envName = ''; v.dataset.envValue = ''; row.dataset.variable = ''; row.classList.add('env-row');
    if (value === null) { n.disabled = v.disabled = true; x.hidden = true; }
    x.addEventListener('click', () => { row.remove(); check(); });
    row.append(n, v, x);
    envBox.append(row);
    return n;
  }
  const fillEnv = () => { envBox.replaceChildren(); for (const [name, value] of Object.entries(JSON.parse(envBox.dataset.env))) variable(name, value); };
  const env = () => Object.fromEntries($$('[data-variable]', envBox).map(r => [$('[data-env-name]', r), $('[data-env-value]', r)]).filter(([n]) => n.value.trim() && !n.disabled).map(([n, v]) => [n.value.trim(), v.value]));

  // the final command: whose each part is
  function command(told) {
    const tokens = told.command, kept = told.kept ?? [], unknown = new Set(told.unknown);
    const at = tokens.findIndex((_, i) => i > 0 && kept.every((t, j) => tokens[i + j] === t)), begins = t => /^-{1,2}[A-Za-z]/.test(t);
    const nodes = [];
    const quote = t => (/^[\w@%+=:,./~()-]+$/.test(t) ? t : `'${t.replaceAll("'", "'\\''")}'`);
    for (let i = 0; i < tokens.length;) {
      const inside = kept.length && at >= 0 && i >= at && i < at + kept.length, edge = inside ? at + kept.length : i < at ? at : tokens.length;
      let j = i + 1;
      while (j < edge && !begins(tokens[j])) j++;
      const text = tokens.slice(i, j).map(quote).join(' ');
      if (!begins(tokens[i]) && !inside) nodes.push(make('b', { textContent: text })); else nodes.push(make('span', { className: unknown.has(tokens[i].split('=')[0]) ? 'unk' : inside ? 'yours-arg' : 'own', textContent: text }));
      nodes.push(' ');
      i = j;
    }
    cmd.replaceChildren(...nodes);
  }

  const escape = t => t.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
  function remove(argument) {
    const [flag, ...rest] = argument.split(/\s+/), value = `("[^"]*"|'[^']*'|[^\\s-]\\S*|-\\d\\S*)`;
    const exact = rest.length ? `${escape(flag)}(\\s+|=)["']?${rest.map(escape).join('\\s+')}["']?` : `${escape(flag)}(=("[^"]*"|\\S*)|\\s+${value})?`;
    f.args.value = f.args.value.replace(new RegExp(`(^|\\s)${exact}(?=\\s|$)`), '$1').replace(/^[ \t]*\n/gm, '').replace(/[ \t]+$/gm, '');
    for (const row of $$('[data-variable]', envBox)) if ($('[data-env-name]', row).value === argument.split('=')[0]) row.remove();
    f.args.focus();
    check(0);
  }
  function swap(from, to) { f.args.value = f.args.value.replace(new RegExp(`(^|\\s)${escape(from)}(?=[\\s=]|$)`), `$1${to}`); f.args.focus(); check(0); }

  function find(icon, tone, argument, strong, text, ...buttons) {
    const words = make('span', {}, make('b', { className: tone === 't3' ? '' : tone, textContent: strong }), ` ${text}`);
    const acts = make('span', { className: 'row' }, ...buttons.filter(Boolean));
    return make('li', {}, make('i', { className: `ic ic-${icon} ${tone}`, ariaHidden: 'true' }), make('code', { textContent: argument, lang: 'en' }), words, acts);
  }
  const button = (text, run) => { if (readonly) return null; const b = make('button', { className: 'btn btn--s', type: 'button', textContent: text }); b.addEventListener('click', run); return b; };

  const wish = () => ({ model: f.model.value, engine: f.engine.value, args: f.args.value, env: env() });
  function check(wait = 300) {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const mine = ++seq;
      try {
        const told = await call('POST', '/presets/check', { ...wish(), ...(f.channel.value ? { channel: f.channel.value } : {}) });
        if (mine !== seq) return; // an answer to what stood there before
        clearForm(form);
        command(told);
        const found = [
          ...told.unknown.map(a => { const meant = told.suggestions?.[a]; return find('tri', 'warn', a, W.tUnknown, `${W.tUnknownMore}${meant ? ` ${fill(W.tDid, { flag: meant })}` : ''}`, meant && button(fill(W.tUse, { flag: meant }), () => swap(a, meant)), button(W.tRemove, () => remove(a))); }),
          ...told.needs_permission.map(a => find('lock', 'bad', a, W.tNeeds, W.tNeedsMore, button(W.tRemove, () => remove(a)))),
          ...told.dropped.map(d => find('cut', 't3', d.argument, W.tDropped, d.why, button(W.tRemove, () => remove(d.argument)))),
        ];
        finds.replaceChildren(...(found.length ? found : [make('li', { className: 'fine' }, make('i', { className: 'ic ic-check ok', ariaHidden: 'true' }), make('span', { textContent: W.tFine }))]));
        const blocked = told.needs_permission.length > 0 && !admin;
        for (const b of $$('[type=submit], [data-save-new]', form)) b.setAttribute('aria-disabled', blocked);
        why.textContent = blocked ? W.tBlocked : '';
      } catch (err) { if (mine === seq) { clearForm(form); refuse(form, err); } }
    }, wait);
  }

  // somebody has saved it meanwhile: what it is now, and that saving again puts this over it
  async function stale() {
    try {
      const is = await call('GET', `/presets/${encodeURIComponent(W.preset)}`);
      W.version = is.version;
      showIn($('[data-said]', form), fill(W.tStale, { name: is.name, engine: is.engine, args: is.args.join(' ') || '–' }));
      return true;
    } catch { return false; }
  }

  async function save(method, path, extra) {
    const buttons = $$('[type=submit], [data-save-new]', form);
    if (buttons.some(b => b.getAttribute('aria-disabled') === 'true')) return;
    clearForm(form);
    buttons.forEach(b => { b.disabled = true; });
    const { model, engine, args, env: variables } = wish(), timeout = f.load_timeout_seconds.value.trim();
    try {
      const told = await call(method, path, { ...(method === 'POST' ? { model } : {}), engine, args, env: variables, name: f.name.value.trim(), load_timeout_seconds: timeout ? Number(timeout) : null, ...extra });
      if (told.hints?.length) { showIn($('[data-said]', form), told.hints.map(h => h.message).join(' '), true); W.version = told.version; toast(W.tSaved); } else {
        try { sessionStorage.setItem('toast', W.tSaved); } catch { /* it is only said once less */ }
        location.assign(`/presets/${encodeURIComponent(told.id)}`);
      }
    } catch (err) { if (!(method === 'PATCH' && err.told?.error?.details?.version && await stale())) refuse(form, err); }
    buttons.forEach(b => { b.disabled = false; });
  }

  form.addEventListener('submit', e => { e.preventDefault(); if (W.preset) save('PATCH', `/presets/${encodeURIComponent(W.preset)}`, { version: Number(W.version) }); else save('POST', '/presets'); });
  $('[data-save-new]', form)?.addEventListener('click', () => save('POST', '/presets'));
  $('[data-env-add]', form).addEventListener('click', () => variable().focus());
  form.addEventListener('input', e => { if (!['name', 'load_timeout_seconds'].includes(e.target.name)) check(); });
  form.addEventListener('reset', () => setTimeout(() => { fillEnv(); check(0); }));
  f.model.addEventListener('change', () => {
    const { channels, engines } = f.model.selectedOptions[0].dataset;
    f.channel.replaceChildren(f.channel.options[0], ...JSON.parse(channels).map(c => make('option', { textContent: c })));
    if (JSON.parse(engines)[0]) f.engine.value = JSON.parse(engines)[0];
    check(0);
  });
  fillEnv();
  check(0);
})();
