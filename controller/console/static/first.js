// Before the first paint: the theme that the person chose. And the browser's time zone, for the server to show times in.
(() => {
  const root = document.documentElement;
  const stored = () => { try { return localStorage.getItem('theme'); } catch { return null; } };
  if (['light', 'dark'].includes(stored())) root.dataset.theme = stored();
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  let moved = false;
  if (zone && /^[\w+/-]{1,64}$/.test(zone) && !document.cookie.split('; ').includes(`zone=${zone}`)) {
    document.cookie = `zone=${zone}; path=/; max-age=31536000; samesite=lax`;
    moved = document.cookie.split('; ').includes(`zone=${zone}`);
  }
  addEventListener('DOMContentLoaded', () => {
    if (moved && document.body.dataset.live) { location.reload(); return; } // its times are in the zone from before
    for (const button of document.querySelectorAll('[data-theme-toggle]')) button.addEventListener('click', () => {
      const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
      root.dataset.theme = dark ? 'light' : 'dark';
      try { localStorage.setItem('theme', root.dataset.theme); } catch { /* the choice lasts as long as the page */ }
    });
  });
})();
