// What every page has: live parts (polled every 2 s, 304 while nothing changed; only what did is swapped, focus is kept),
// times counted on in between from the server's clock, calls of the REST API, toasts, menus, copy buttons.
(() => {
  const { zone, clock } = window.slotserve;
  const $ = (s, e = document) => e.querySelector(s), $$ = (s, e = document) => [...e.querySelectorAll(s)];
  const body = document.body, T = name => body.dataset[`t${name}`] ?? '';
  const fill = (text, values) => text.replace(/%\((\w+)\)s/g, (_, k) => values[k] ?? '');
  let offset = Number(body.dataset.now) - Date.now(), lastWord = Number(body.dataset.now), lost = false, etag = body.dataset.tag ? `W/"${body.dataset.tag}"` : '';
  const hashes = JSON.parse(body.dataset.hashes || '{}');
  const now = () => Date.now() + offset;

  // the same rule as the server's
  const duration = seconds => {
    const s = Math.max(0, Math.floor(seconds)), m = Math.floor(s / 60), h = Math.floor(s / 3600);
    if (s < 120) return fill(T('S'), { s });
    if (m < 10 && s % 60) return fill(T('Ms'), { m, s: s % 60 });
    if (m < 60) return fill(T('M'), { m });
    if (h < 48) return fill(T(m % 60 ? 'Hm' : 'H'), { h, m: m % 60 });
    return fill(T(h % 24 ? 'Dh' : 'D'), { d: Math.floor(h / 24), h: h % 24 });
  };
  // what is still to come, in begun minutes from ten on
  const ahead = ms => duration(ms > 6e5 ? Math.ceil(ms / 6e4) * 60 : ms / 1000);
  const say = (el, text) => { if (el && el.textContent !== text) el.textContent = text; };

  function tick() {
    if (lost) return; // figures stay, countdowns stop
    const t = now();
    for (const el of $$('[data-tick]')) {
      const at = Number(el.dataset.at);
      if (el.dataset.tick === 'in') say(el, fill(T('In'), { time: ahead(at - t) }));
      else if (el.dataset.tick === 'left') say(el, fill(T('Left'), { time: ahead(at - t) }));
    }
    for (const box of $$('[data-progress]')) {
      const d = box.dataset, elapsed = Math.max(0, (t - Number(d.since)) / 1000), estimate = Number(d.seconds);
      const bar = $('progress', box), over = estimate > 0 && elapsed > estimate;
      // never 100 % before it is ready
      if (estimate > 0) bar.value = over ? estimate : Math.min(elapsed, estimate * .99);
      bar.classList.toggle('is-over', over);
      const form = d.progress === 'draining' ? 'Drain' : !estimate ? 'First' : over ? 'Over' : 'Load';
      const at = form === 'Over' ? Number(d.limit) : Number(d.since) + estimate * 1000;
      say($('[data-tick=progress]', box), fill(T(form), { elapsed: duration(elapsed), estimate: duration(estimate), at: Number.isFinite(at) && at > 0 ? clock(at, form === 'Over') : '' }));
    }
    say($('[data-clock] time') ?? $('[data-clock]'), clock(t));
  }

  function swap(name, hash, html) {
    for (const part of $$(`[data-part="${CSS.escape(name)}"]`)) {
      const had = part.contains(document.activeElement) ? document.activeElement : null;
      const pressed = name === 'chips' ? $('[aria-pressed=true]', part)?.dataset.filter : null;
      const key = had && ['data-do', 'data-api', 'data-id', 'data-book', 'data-filter', 'href'].filter(a => had.hasAttribute(a)).map(a => `[${a}="${CSS.escape(had.getAttribute(a))}"]`).join('');
      const opened = $$('details[open][data-key]', part).map(d => d.dataset.key);
      part.innerHTML = html;
      for (const d of $$('details[data-key]', part)) d.open = opened.includes(d.dataset.key);
      if (pressed) $$('[data-filter]', part).forEach(b => b.setAttribute('aria-pressed', b.dataset.filter === pressed));
      if (key) $(`${had.localName}${key}`, part)?.focus({ preventScroll: true });
    }
    hashes[name] = hash;
  }

  // what one has chosen to see stays through a reload and the way back: it stands in the address
  function keep(name, value) {
    const at = new URL(location.href);
    value ? at.searchParams.set(name, value) : at.searchParams.delete(name);
    history.replaceState(history.state, '', at);
  }
  const kept = name => new URLSearchParams(location.search).get(name) ?? '';

  function filter() {
    const group = $('[data-filter][aria-pressed=true]')?.dataset.filter ?? '';
    for (const row of $$('.ch[data-groups]')) row.parentElement.hidden = group !== '' && !row.dataset.groups.split(' ').includes(group);
    for (const node of $$('.node')) node.hidden = group !== '' && !$('ul > li:not([hidden])', node);
  }

  function connection(good) {
    lost = !good;
    const el = $('[data-live-state]');
    if (!el) return;
    el.classList.toggle('live--off', lost);
    $('.ic', el).className = `ic ic-${lost ? 'cut' : 'dot'}`;
    say($('span', el), lost ? fill(T('Lost'), { time: clock(lastWord, true) }) : T('Live'));
  }

  const SHELL = ['approvals', 'notices'], EVERY = body.dataset.live ? 2000 : 15000;
  let timer = 0, asking = false, held = false;
  const hold = yes => { held = yes; }; // while something is being dragged nothing moves under the pointer
  async function poll() {
    clearTimeout(timer);
    if (asking) return;
    if (held) { timer = setTimeout(poll, 500); return; }
    asking = true;
    try {
      const sent = Date.now();
      const answer = await fetch(body.dataset.live ?? '/live/shell', { headers: etag ? { 'If-None-Match': etag } : {}, cache: 'no-store', signal: AbortSignal.timeout(10000) });
      if (answer.status === 401) { window.slotserve.session?.ended(); throw new Error('signed out'); }
      await window.slotserve.session?.back();
      if (answer.status !== 304 && !answer.ok) throw new Error(answer.status);
      const told = Number(answer.headers.get('X-SlotServe-Now'));
      if (told) { offset = told - (sent + Date.now()) / 2; lastWord = told; }
      if (answer.status !== 304) {
        etag = answer.headers.get('ETag') ?? '';
        const { parts, names } = await answer.json();
        if (held) { etag = ''; return; }
        if (names && body.dataset.live) { // another set of channels, or bookings: the page is made anew
          const known = new Set($$('[data-part]').map(p => p.dataset.part)), wanted = names.filter(n => !SHELL.includes(n));
          if (wanted.some(n => !known.has(n)) || [...known].some(n => !SHELL.includes(n) && !names.includes(n))) {
            if (!$('dialog[open]')) { location.reload(); return; }
            etag = ''; // once it is closed: what stands in it is not thrown away
          }
        }
        const changed = Object.entries(parts).filter(([name, [hash]]) => hashes[name] !== hash);
        for (const [name, [hash, html]] of changed) swap(name, hash, html);
        if (changed.length) dispatchEvent(new CustomEvent('slotserve:parts', { detail: changed.map(([name]) => name) }));
        filter();
      }
      connection(true);
    } catch {
      connection(false);
    } finally {
      asking = false;
      timer = setTimeout(poll, document.hidden ? 15000 : EVERY);
    }
    tick();
  }

  // `more`: {text, act} or {text, href}, a button beside the text (Undo, How to call it)
  function toast(text, good = true, more = null) {
    const el = $('[data-toast]');
    $('.ic', el).className = `ic ic-${good ? 'check' : 'oct bad'}`;
    say($('span', el), text);
    $('[data-more]', el)?.remove();
    if (more) {
      const b = Object.assign(document.createElement(more.href ? 'a' : 'button'), { className: 'btn btn--s', textContent: more.text, ...(more.href ? { href: more.href } : { type: 'button', onclick: () => { el.hidden = true; more.act(); } }) });
      b.dataset.more = '';
      $('span', el).after(b);
    }
    el.hidden = false;
    clearTimeout(toast.timer);
    const hide = () => { if (el.matches(':hover, :focus-within')) toast.timer = setTimeout(hide, 2000); else el.hidden = true; };
    toast.timer = setTimeout(hide, more ? 20000 : 8000); // who is to press something needs time to read it first
  }

  async function call(method, path, data) {
    const answer = await fetch(`/api/v1${path}`, { method, headers: { 'Content-Type': 'application/json', 'X-CSRF-Token': $('meta[name=csrf-token]').content }, body: data === undefined ? undefined : JSON.stringify(data) });
    const told = answer.status === 204 ? {} : await answer.json();
    if (answer.status === 401) { window.slotserve.session?.ended(); throw Object.assign(new Error(T('SignedOut')), { told: {}, status: 401 }); }
    if (!answer.ok) throw Object.assign(new Error(told.error?.message ?? answer.status), { told, status: answer.status });
    return told;
  }

  // data-copy="#id" or nothing: the code that stands in the same box
  async function copy(button) {
    const box = button.closest('[data-howto], .codebox, .card, article, section') ?? document;
    const from = button.dataset.copy ? $(button.dataset.copy) : $$('pre, code', box).find(x => x.localName === 'pre' && !x.closest('[hidden]')) ?? $('code', box);
    try { await navigator.clipboard.writeText(from.textContent); toast(T('Copied')); }
    catch { // no permission, or no https: select it, so that one key does it
      getSelection().selectAllChildren(from);
      toast(document.execCommand('copy') ? T('Copied') : T('CopyFailed'), true);
    }
  }

  // The question before what cannot be undone; with a reason where somebody else's booking is touched, and for a repeated
  // one which of them. Answers null, or {reason, scope}.
  function sure(words, act, { why = false, series = false } = {}) {
    const dlg = $('#sure'), reason = $('#sure-reason');
    $('[data-words]', dlg).textContent = words;
    $('[data-sure-yes]', dlg).textContent = act;
    $('[data-sure-reason]', dlg).hidden = !why;
    $('[data-sure-scope]', dlg).hidden = !series;
    reason.value = '';
    reason.required = why;
    dlg.returnValue = '';
    dlg.showModal();
    return new Promise(done => dlg.addEventListener('close', () => done(dlg.returnValue === 'yes' ? { ...(why ? { reason: reason.value } : {}), ...(series ? { scope: $('[name=scope]:checked', dlg).value } : {}) } : null), { once: true }));
  }
  addEventListener('click', e => { if (e.target.closest?.('[data-sure-no]')) $('#sure').close(''); });

  async function act(button) {
    const { do: what, id, channel, minutes, to, version, was } = button.dataset, why = 'why' in button.dataset, series = 'series' in button.dataset;
    let more = {};
    if (what === 'end' || why || series) {
      more = await sure(why ? T('SureWhy') : series ? T('SureSeries') : T('SureEnd'), button.textContent.trim(), { why, series });
      if (!more) return;
    }
    button.disabled = true;
    try {
      if (what === 'uncancel') await window.slotserve.undo.back(id, more);
      else if (what === 'retry') { await call('POST', `/channels/${channel.split('/').map(encodeURIComponent).join('/')}/retry`, {}); toast(T('Retrying')); }
      else {
        const wish = what === 'extend' ? to ? { ends_at: new Date(Number(to)).toISOString(), ...(version ? { version: Number(version) } : {}) } : { minutes: Number(minutes) } : {};
        const told = await call('POST', `/reservations/${encodeURIComponent(id)}/${what}`, { ...wish, ...more });
        const { undo, moment } = window.slotserve, offer = act => ({ text: T('Undo'), act });
        if (what === 'extend') toast(fill(T('Extended'), { time: moment(Date.parse(told.ends_at)) }), true, was ? offer(() => undo.shorter(told, Number(was))) : null);
        else toast(T(what === 'end' ? 'Ended' : 'Cancelled'), true, told.status === 'cancelled' && !series ? offer(() => undo.back(id, why ? { reason: T('Undo') } : {})) : null);
      }
    } catch (err) { toast(fill(T('Failed'), { why: window.slotserve.booking?.refusal(err) ?? err.message }), false); }
    button.disabled = false;
    poll();
  }

  addEventListener('click', e => {
    const b = e.target.closest?.('button');
    if (!b) return;
    if (b.dataset.do) act(b);
    else if ('filter' in b.dataset) { $$('[data-filter]').forEach(x => x.setAttribute('aria-pressed', x === b)); keep('show', b.dataset.filter); filter(); }
    else if ('copy' in b.dataset) copy(b);
    else if (b.closest('[data-toast]') && !b.dataset.more) $('[data-toast]').hidden = true;
  });
  // menus close with a click elsewhere and with Escape, which gives focus back
  addEventListener('click', e => { for (const m of $$('details.menu[open]')) if (!m.contains(e.target)) m.open = false; });
  addEventListener('keydown', e => {
    if (e.key !== 'Escape') return;
    for (const m of $$('details.menu[open]')) { m.open = false; $('summary', m).focus(); }
  });
  document.addEventListener('visibilitychange', () => { if (!document.hidden) poll(); });
  Object.assign(window.slotserve, { $, $$, T, fill, now, duration, toast, call, poll, hold, sure, keep, kept });
  if ($(`[data-filter="${CSS.escape(kept('show'))}"]`)) { $$('[data-filter]').forEach(x => x.setAttribute('aria-pressed', x.dataset.filter === kept('show'))); filter(); }
  setInterval(tick, 1000);
  tick();
  if (body.dataset.me) timer = setTimeout(poll, 'more' in body.dataset ? 0 : EVERY); // rows that the page has left out come at once
})();
