// Times in the viewer's zone: instants to words and back, as the server has them. Loaded before every other script.
(() => {
  const zone = document.body.dataset.zone ?? 'UTC', lang = document.body.dataset.lang ?? 'en';
  const form = options => new Intl.DateTimeFormat('en-CA', { timeZone: zone, hourCycle: 'h23', ...options });
  const whole = form({ year: 'numeric', month: '2-digit', day: '2-digit', hour: '2-digit', minute: '2-digit', second: '2-digit' });
  const short = form({ hour: '2-digit', minute: '2-digit' }), long = form({ hour: '2-digit', minute: '2-digit', second: '2-digit' });
  const named = new Intl.DateTimeFormat(lang === 'en' ? 'en-GB' : lang, { timeZone: zone, weekday: 'short', day: 'numeric', month: 'short' });
  const parts = at => Object.fromEntries(whole.formatToParts(at).map(p => [p.type, p.value]));
  const clock = (at, seconds) => (seconds ? long : short).format(at);
  const day = at => { const p = parts(at); return `${p.year}-${p.month}-${p.day}`; };
  const wall = at => { const p = parts(at); return Date.UTC(p.year, p.month - 1, p.day, p.hour, p.minute, p.second); };
  const offset = Number(document.body.dataset.now) - Date.now();

  // "2026-11-19", "14:30" -> {at, twice}: at is null where the clocks skip it; null while it is being typed
  function instant(date, time) {
    const [, h, m] = /^\s*(\d{1,2})[:：.]?(\d{2})\s*$/.exec(time) ?? [];
    let want = Date.parse(`${date}T${(h === '24' ? '00' : h ?? '').padStart(2, '0')}:${m}:00Z`);
    if (Number.isNaN(want)) return null;
    if (h === '24') want += 864e5;
    const found = [...new Set([-1, 0, 1].map(d => want - (wall(want + d * 864e5) - (want + d * 864e5))))].filter(at => wall(at) === want).sort((a, b) => a - b);
    return { at: found[0] ?? null, twice: found.length > 1 };
  }
  const next = date => new Date(Date.parse(`${date}T00:00Z`) + 864e5).toISOString().slice(0, 10);
  const today = () => day(Date.now() + offset);
  // 16:00–18:00, 19:00 – Fri 20 Nov 07:00; the day where it is not today, 24:00 for an end at midnight
  function span(from, to) {
    const first = day(from), last = day(to), midnight = clock(to) === '00:00' && last === next(first);
    const end = midnight ? '–24:00' : last === first ? `–${clock(to)}` : ` – ${named.format(to)} ${clock(to)}`;
    return `${first === today() ? '' : `${named.format(from)} `}${clock(from)}${end}`;
  }
  const moment_ = at => `${day(at) === today() ? '' : `${named.format(at)} `}${clock(at)}`;
  window.slotserve = { zone, clock, day, instant, next, span, moment: moment_, dayName: at => named.format(at) };
})();
