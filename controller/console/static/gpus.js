// GPU memory and use on the overview: every 5 s, for the nodes in view alone. Drawn into the cells of the rows, again after
// a row was swapped.
(() => {
  const { $, $$, T, fill } = window.slotserve;
  const near = new Set(), known = {}, heat = {};
  const seen = new IntersectionObserver(entries => { for (const e of entries) e.isIntersecting ? near.add(e.target.dataset.node) : near.delete(e.target.dataset.node); ask(); }, { rootMargin: '200px' });
  function draw(anchor) {
    const cell = $(`#${CSS.escape(anchor)} [data-gpu]`), f = known[anchor];
    if (!cell || !f) return;
    if (!cell.firstChild) { // a row that has just come
      cell.innerHTML = '<svg class="meter"><rect width="0" height="6"/></svg><span data-mem></span><svg class="spark" viewBox="0 0 100 20" preserveAspectRatio="none"><polygon points=""/><polyline points=""/></svg><span data-use></span>';
      cell.setAttribute('role', 'img');
      if (cell.closest('.ch--mine')) $('rect', cell).classList.add('mine');
    }
    const put = (part, text) => { const el = $(`[data-${part}]`, cell); if (el && el.textContent !== text) el.textContent = text; };
    put('mem', f.memory ? `${f.memory[0]} / ${f.memory[1]} GB` : '');
    put('use', f.use === null ? '' : `${f.use} %`);
    $('.meter rect', cell).setAttribute('width', `${f.share ?? 0}%`);
    const n = f.line.length - 1, points = n > 0 ? f.line.map((v, i) => `${(i / n * 100).toFixed(1)},${(19 - v / 100 * 18).toFixed(1)}`).join(' ') : '';
    $('polyline', cell).setAttribute('points', points);
    $('polygon', cell).setAttribute('points', points && `0,20 ${points} 100,20`);
    const words = [f.memory && fill(T('GpuMemory'), { used: f.memory[0], total: f.memory[1] }), f.use !== null && fill(T('GpuUse'), { percent: f.use })].filter(Boolean).join(', ');
    cell.setAttribute('aria-label', words);
    cell.title = words;
  }
  const warm = anchor => { const el = $(`#${CSS.escape(anchor)} [data-heat]`); if (el) { el.textContent = heat[anchor] ?? ''; el.hidden = !heat[anchor]; } };
  let timer = 0, asking = false;
  async function ask() {
    clearTimeout(timer);
    if (asking) return;
    asking = true;
    if (near.size && !document.hidden) {
      try {
        const answer = await fetch(`/overview/gpus?nodes=${encodeURIComponent([...near].join(','))}`, { cache: 'no-store', signal: AbortSignal.timeout(10000) });
        if (answer.ok) {
          const told = await answer.json();
          Object.assign(known, told.channels);
          Object.assign(heat, told.heat);
          Object.keys(told.channels).forEach(draw);
          Object.keys(told.heat).forEach(warm);
        }
      } catch { /* the connection's state is told by the live parts */ }
    }
    asking = false;
    timer = setTimeout(ask, 5000);
  }
  addEventListener('slotserve:parts', e => { for (const name of e.detail) { draw(name); if (name.startsWith('head-')) warm(name.slice(5)); } });
  document.addEventListener('visibilitychange', () => { if (!document.hidden) ask(); });
  for (const node of $$('.node[data-node]')) seen.observe(node);
})();
