// The people who may call as well: a field that collects names. `known()` are the people there are, `changed()` is called after
// each change.
(() => {
  const { $, $$, fill, says } = window.slotserve;
  if (!says) return;
  const { T, el, icon } = says;
  window.slotserve.people = (dlg, known, changed) => {
    let names = [];
    const box = $('.people', dlg), who = $('#d-w', dlg);
    function show() {
      for (const x of $$('.person', box)) x.remove();
      who.before(...names.map(name => el('span', { className: 'person' }, document.createTextNode(name), el('button', { type: 'button', ariaLabel: fill(T('Remove'), { name }), onclick: () => { names = names.filter(g => g !== name); show(); who.focus(); changed(); } }, icon('x')))));
    }
    function add() {
      const name = who.value.trim().replace(/[,，;；]$/, '').trim();
      if (!name) return false;
      const person = known().find(p => p.name.toLowerCase() === name.toLowerCase());
      if (!names.includes(person?.name ?? name)) names.push(person?.name ?? name);
      who.value = '';
      show();
      changed();
      return true;
    }
    who.addEventListener('keydown', e => {
      if (['Enter', ',', '，', ';'].includes(e.key) && who.value.trim() && !e.isComposing) { e.preventDefault(); add(); }
      else if (e.key === 'Backspace' && !who.value && names.length) { names.pop(); show(); changed(); }
    });
    who.addEventListener('change', add);
    return { names: () => names, set: list => { names = list; show(); }, finish: () => who.value.trim() && add() };
  };
})();
