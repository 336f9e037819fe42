// A small chat: the answer is read as it comes, line by line of server-sent events, and shown as text only.
(() => {
  const { $, fill } = window.slotserve;
  const root = $('[data-try]');
  if (!root) return;
  const W = root.dataset, box = $('[data-try-box]', root), form = $('[data-try-form]', root), text = $('#c-text'), send = $('[data-try-send]', root), stop = $('[data-try-stop]', root), channel = $('[data-try-channel]');
  let said = [], running = null;
  const make = (tag, props, ...inner) => { const el = Object.assign(document.createElement(tag), props); el.append(...inner); return el; };
  const atEnd = () => box.scrollHeight - box.scrollTop - box.clientHeight < 80;

  function bubble(mine, content = '') {
    $('[data-try-empty]', box)?.remove();
    const el = make('div', { className: `msg msg--${mine ? 'me' : 'it'}` }, make('span', { textContent: content }));
    box.append(el);
    box.scrollTop = box.scrollHeight;
    return el;
  }
  function refused(el, error, status) {
    const known = W[`c${(error?.code ?? '').split('_').map(p => p.charAt(0).toUpperCase() + p.slice(1)).join('')}`];
    el.classList.add('note', 'note--bad');
    el.replaceChildren(make('div', {}, ...(known ? [make('p', {}, make('b', { textContent: known }))] : []), make('p', { textContent: error?.message ?? String(status), lang: 'en' })));
  }

  async function ask() {
    const wish = text.value.trim();
    if (!wish || running) return;
    const system = $('#c-system').value.trim(), temperature = $('#c-temp').value, most = Number($('#c-max').value) || 1024;
    said.push({ role: 'user', content: wish });
    bubble(true, wish);
    text.value = '';
    const el = bubble(false), out = $('span', el), began = performance.now();
    el.classList.add('is-running');
    running = new AbortController();
    send.hidden = true; stop.hidden = false; stop.focus();
    let answer = '', thought = '', usage = null, failed = null, note = '';
    try {
      const [node, name] = channel.value.split('/').map(encodeURIComponent);
      const told = await fetch(`/api/console/try/${node}/${name}`, { method: 'POST', signal: running.signal, headers: { 'Content-Type': 'application/json', 'X-CSRF-Token': $('meta[name=csrf-token]').content }, body: JSON.stringify({ messages: [...(system ? [{ role: 'system', content: system }] : []), ...said], max_tokens: most, ...(temperature ? { temperature: Number(temperature) } : {}) }) });
      if (!told.ok) failed = [(await told.json().catch(() => ({}))).error, told.status];
      else {
        if (told.headers.get('X-SlotServe-Fallback') === 'true') note = fill(W.tFallback, { model: told.headers.get('X-SlotServe-Model') ?? '' });
        const reader = told.body.pipeThrough(new TextDecoderStream()).getReader();
        for (let rest = ''; ;) {
          const { value, done } = await reader.read();
          if (done) break;
          const lines = (rest + value).split(/\r?\n/);
          rest = lines.pop();
          const stay = atEnd();
          for (const line of lines) {
            if (!line.startsWith('data:')) continue;
            const data = line.slice(5).trim();
            if (data === '[DONE]') continue;
            let event; try { event = JSON.parse(data); } catch { continue; }
            if (event.error) { failed = [event.error, 0]; continue; }
            usage = event.usage ?? usage;
            const delta = event.choices?.[0]?.delta ?? {};
            thought += delta.reasoning_content ?? delta.reasoning ?? '';
            answer += delta.content ?? '';
          }
          out.replaceChildren(...(thought ? [make('span', { className: 'think', textContent: thought + (answer ? '\n\n' : '') })] : []), answer);
          if (stay) box.scrollTop = box.scrollHeight;
        }
      }
    } catch (err) { if (err.name === 'AbortError') note = W.tStopped; else failed = [{ message: W.tLost }, 0]; }
    el.classList.remove('is-running');
    if (answer) said.push({ role: 'assistant', content: answer }); else said.pop();
    if (failed) refused(answer || thought ? bubble(false) : el, ...failed);
    else {
      const rate = usage?.completion_tokens ? fill(W.tRate, { n: usage.completion_tokens, s: ((performance.now() - began) / 1000).toFixed(1) }) : '';
      if (note || rate) el.append(make('small', { textContent: [note, rate].filter(Boolean).join(' · ') }));
    }
    running = null;
    stop.hidden = true; send.hidden = false; text.focus();
  }
  form.addEventListener('submit', e => { e.preventDefault(); ask(); });
  text.addEventListener('keydown', e => { if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) { e.preventDefault(); ask(); } });
  stop.addEventListener('click', () => running?.abort());
  const fresh = () => { running?.abort(); said = []; for (const el of [...box.children]) if (!el.matches('[data-try-empty]')) el.remove(); text.focus(); };
  $('[data-try-new]').addEventListener('click', fresh);
  channel.addEventListener('change', fresh);
  text.focus();
})();
