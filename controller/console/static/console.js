// The overview stays live: it polls every 2 s (304 while nothing changed), swaps only the parts that did, keeps focus,
// and counts times on in between from the server's clock. No inline script or style anywhere.
(() => {
  const $ = (s, e = document) => e.querySelector(s), $$ = (s, e = document) => [...e.querySelectorAll(s)];
  const body = document.body, T = name => body.dataset[`t${name}`] ?? '';
  const fill = (text, values) => text.replace(/%\((\w+)\)s/g, (_, k) => values[k] ?? '');
  let offset = Number(body.dataset.now) - Date.now(), lastWord = Number(body.dataset.now), lost = false, etag = '';
  const hashes = JSON.parse(body.dataset.hashes || '{}');
  const now = () => Date.now() + offset;
  const clock = (at, seconds) => new Intl.DateTimeFormat('en-GB', { timeZone: body.dataset.zone, hour: '2-digit', minute: '2-digit', second: seconds ? '2-digit' : undefined, hourCycle: 'h23' }).format(at);

  // the same rule as the server's
  const duration = seconds => {
    const s = Math.max(0, Math.floor(seconds)), m = Math.floor(s / 60), h = Math.floor(s / 3600);
    if (s < 120) return fill(T('S'), { s });
    if (m < 10) return fill(T('Ms'), { m, s: s % 60 });
    if (m < 60) return fill(T('M'), { m });
    if (h < 48) return fill(T('Hm'), { h, m: m % 60 });
    return fill(T('Dh'), { d: Math.floor(h / 24), h: h % 24 });
  };
  const say = (el, text) => { if (el && el.textContent !== text) el.textContent = text; };

  function tick() {
    if (lost) return; // figures stay, countdowns stop
    const t = now();
    for (const el of $$('[data-tick]')) {
      const at = Number(el.dataset.at);
      if (el.dataset.tick === 'in') say(el, fill(T('In'), { time: duration((at - t) / 1000) }));
      else if (el.dataset.tick === 'left') say(el, fill(T('Left'), { time: duration((at - t) / 1000) }));
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
    const part = $(`[data-part="${CSS.escape(name)}"]`);
    if (!part) return false; // a channel that was not there when the page was made
    const had = part.contains(document.activeElement) ? document.activeElement : null;
    const pressed = name === 'chips' ? $('[aria-pressed=true]', part)?.dataset.filter : null;
    const key = had && ['data-do', 'data-id', 'data-book', 'data-filter', 'href'].filter(a => had.hasAttribute(a)).map(a => `[${a}="${CSS.escape(had.getAttribute(a))}"]`).join('');
    part.innerHTML = html;
    hashes[name] = hash;
    if (pressed) $$('[data-filter]', part).forEach(b => b.setAttribute('aria-pressed', b.dataset.filter === pressed));
    if (key) $(`${had.localName}${key}`, part)?.focus({ preventScroll: true });
    return true;
  }

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

  let timer = 0, asking = false;
  async function poll() {
    clearTimeout(timer);
    if (asking) return;
    asking = true;
    try {
      const sent = Date.now();
      const answer = await fetch(body.dataset.live, { headers: etag ? { 'If-None-Match': etag } : {}, cache: 'no-store', signal: AbortSignal.timeout(10000) });
      if (answer.status === 401) { location.assign('/login?next=/'); return; }
      if (answer.status !== 304 && !answer.ok) throw new Error(answer.status);
      const told = Number(answer.headers.get('X-SlotServe-Now'));
      if (told) { offset = told - (sent + Date.now()) / 2; lastWord = told; }
      if (answer.status !== 304) {
        etag = answer.headers.get('ETag') ?? '';
        const { parts } = await answer.json();
        const known = new Set($$('[data-part]').map(p => p.dataset.part));
        if (Object.keys(parts).some(p => !known.has(p)) || [...known].some(p => !(p in parts))) { location.reload(); return; } // another set of channels
        for (const [name, [hash, html]] of Object.entries(parts)) if (hashes[name] !== hash) swap(name, hash, html);
        filter();
      }
      connection(true);
    } catch {
      connection(false);
    } finally {
      asking = false;
      timer = setTimeout(poll, document.hidden ? 15000 : 2000);
    }
    tick();
  }

  function toast(text, good = true) {
    const el = $('[data-toast]');
    $('.ic', el).className = `ic ic-${good ? 'check' : 'oct bad'}`;
    say($('span', el), text);
    el.hidden = false;
    clearTimeout(toast.timer);
    const hide = () => { if (el.matches(':hover, :focus-within')) toast.timer = setTimeout(hide, 2000); else el.hidden = true; };
    toast.timer = setTimeout(hide, 8000);
  }

  async function call(method, path, data) {
    const answer = await fetch(`/api/v1${path}`, { method, headers: { 'Content-Type': 'application/json', 'X-CSRF-Token': $('meta[name=csrf-token]').content }, body: data === undefined ? undefined : JSON.stringify(data) });
    const told = answer.status === 204 ? {} : await answer.json();
    if (!answer.ok) throw Object.assign(new Error(told.error?.message ?? answer.status), { told, status: answer.status });
    return told;
  }

  async function act(button) {
    const { do: what, id, channel, minutes } = button.dataset;
    if (what === 'end' && !confirm(T('SureEnd'))) return;
    button.disabled = true;
    try {
      if (what === 'retry') { await call('POST', `/channels/${channel.split('/').map(encodeURIComponent).join('/')}/retry`, {}); toast(T('Retrying')); }
      else {
        const told = await call('POST', `/reservations/${encodeURIComponent(id)}/${what}`, what === 'extend' ? { minutes: Number(minutes) } : {});
        toast(what === 'extend' ? fill(T('Extended'), { time: clock(Date.parse(told.ends_at)) }) : T(what === 'end' ? 'Ended' : 'Cancelled'));
      }
    } catch (err) { toast(fill(T('Failed'), { why: err.message }), false); }
    button.disabled = false;
    poll();
  }

  addEventListener('click', e => {
    const b = e.target.closest?.('button');
    if (!b) return;
    if (b.dataset.do) act(b);
    else if ('filter' in b.dataset) { $$('[data-filter]').forEach(x => x.setAttribute('aria-pressed', x === b)); filter(); }
    else if (b.closest('[data-toast]')) $('[data-toast]').hidden = true;
  });
  document.addEventListener('visibilitychange', () => { if (!document.hidden) poll(); });
  window.slotserve = { $, $$, T, fill, now, clock, duration, toast, call, poll };
  setInterval(tick, 1000);
  tick();
  timer = setTimeout(poll, 2000);
})();
