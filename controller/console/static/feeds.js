// A new calendar feed's address: shown once, in this page alone.
(() => {
  const { $ } = window.slotserve, form = $('[data-make-feed]');
  form.addEventListener('slotserve:done', e => {
    $('#feed-url').textContent = e.detail.url;
    $('[data-feed-made]').hidden = false;
    $('#feed-url').focus();
  });
})();
