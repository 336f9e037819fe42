// A session that ends while somebody types loses nothing: the page stays, says so, and goes on when they have signed in again
// (in another window, so that what they typed is still here). Where nothing was typed, the log-in follows at once.
(() => {
  const { $ } = window.slotserve, bar = $('[data-signed-out]');
  let typed = false, out = false;
  addEventListener('input', e => { if (e.target.form && e.target.form.method !== 'get') typed = true; }, true);
  for (const done of ['slotserve:done', 'slotserve:saved']) addEventListener(done, () => { typed = false; }, true);

  function ended() {
    if (!typed || !bar) { location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}`); return; }
    out = true;
    bar.hidden = false;
  }
  // signed in again: the page takes the new session's token, and its forms can be sent
  async function back() {
    if (!out) return;
    const page = new DOMParser().parseFromString(await (await fetch(location.href, { cache: 'no-store' })).text(), 'text/html');
    const fresh = $('meta[name=csrf-token]', page), who = page.body.dataset.me;
    if (who !== document.body.dataset.me) { location.reload(); return; } // somebody else: nothing here is theirs
    $('meta[name=csrf-token]').content = fresh.content;
    for (const field of document.querySelectorAll('input[name=csrf_token]')) field.value = fresh.content;
    out = false;
    bar.hidden = true;
  }
  window.slotserve.session = { ended, back };
})();
