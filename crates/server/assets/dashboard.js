// The only script. Pages work without it; it updates their live parts, shows local times, and adds keyboard shortcuts.
'use strict';
(() => {
  const root = document.documentElement, body = document.body;
  const $ = (query, from = document) => from.querySelector(query);
  const all = (query, from = document) => [...from.querySelectorAll(query)];

  // Times: relative in the text, local in the title.
  const units = [['year', 31536e3], ['month', 2592e3], ['week', 604800], ['day', 86400], ['hour', 3600], ['minute', 60]];
  const words = new Intl.RelativeTimeFormat('en', { numeric: 'auto', style: 'short' });
  const local = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' });
  const relative = (seconds) => {
    const [unit, size] = units.find(([, size]) => Math.abs(seconds) >= size) ?? ['now', 1];
    return unit === 'now' ? (seconds < 0 ? 'in a moment' : 'just now') : words.format(-Math.round(seconds / size), unit);
  };
  const showTimes = (from = document) => {
    for (const time of all('time[datetime]', from)) {
      const at = new Date(time.dateTime);
      const text = relative((Date.now() - at) / 1000);
      if (time.textContent !== text) time.textContent = text;
      time.title = local.format(at);
    }
  };

  // Live parts: elements with an id and data-live. A refresh fetches the page again and replaces those that changed.
  let busy = false, stale = false, timer = 0, last = 0;
  const seen = new Map(all('[data-live][id]').map((part) => [part.id, part.outerHTML]));
  showTimes();
  setInterval(showTimes, 20000);
  const typing = (target) => target.closest?.('input, textarea, select, [contenteditable]');
  const keep = (old, fresh) => {
    const open = new Set(all('details[id][open]', old).map((details) => details.id));
    for (const details of all('details[id]', fresh)) if (open.has(details.id)) details.open = true;
    const known = new Set(all('[data-key]', old).map((item) => item.dataset.key));
    if (known.size) for (const item of all('[data-key]', fresh)) if (!known.has(item.dataset.key)) item.classList.add('new');
  };
  const refresh = async () => {
    if (busy || document.hidden) { stale = true; return; }
    busy = true; stale = false; last = Date.now();
    try {
      const response = await fetch(location.href, { credentials: 'same-origin', cache: 'no-store' });
      if (response.status === 401 || response.redirected) { state('out'); return; }
      if (!response.ok) return;
      const page = new DOMParser().parseFromString(await response.text(), 'text/html');
      for (const old of all('[data-live][id]')) {
        const fresh = page.getElementById(old.id);
        const text = fresh?.outerHTML;
        if (!fresh || seen.get(old.id) === text || old.contains(document.activeElement) && typing(document.activeElement)) continue;
        seen.set(old.id, text);
        const focus = old.contains(document.activeElement) && document.activeElement.getAttribute('href');
        keep(old, fresh);
        showTimes(fresh);
        old.replaceWith(document.adoptNode(fresh));
        if (focus) all('a[href]', fresh).find((link) => link.getAttribute('href') === focus)?.focus();
      }
    } catch { /* Offline: the stream reconnects and triggers a refresh. */ } finally {
      busy = false;
      if (stale) soon();
    }
  };
  // Debounces refreshes: at most one in 700 ms.
  const soon = () => { clearTimeout(timer); timer = setTimeout(refresh, Math.max(60, last + 700 - Date.now())); };
  document.addEventListener('visibilitychange', () => { if (!document.hidden && stale) soon(); });

  const shown = $('#live-state');
  const labels = { on: 'Live', off: 'Reconnecting', out: 'Signed out' };
  const state = (now) => {
    if (!shown || shown.dataset.state === now) return;
    shown.dataset.state = now; shown.hidden = false;
    $('.live-text', shown).textContent = labels[now];
  };
  if (body.dataset.events && window.EventSource) {
    const stream = new EventSource(body.dataset.events);
    stream.addEventListener('open', () => state('on'));
    // Sent once this page gets hints: refreshes what changed since the page was rendered.
    stream.addEventListener('hello', soon);
    stream.addEventListener('error', () => { state(stream.readyState === EventSource.CLOSED ? 'out' : 'off'); });
    stream.addEventListener('changed', soon);
    stream.addEventListener('bye', () => { stream.close(); state('out'); });
    stream.addEventListener('mail', (event) => { soon(); notify(JSON.parse(event.data)); });
    addEventListener('pagehide', () => stream.close());
    setInterval(soon, 20000);
  }

  // Desktop notifications, if the user turned them on.
  const bell = $('#bell');
  const wants = () => localStorage.getItem('amb-notify') === 'yes' && window.Notification?.permission === 'granted';
  const showBell = () => { if (bell) { bell.hidden = !window.Notification; bell.setAttribute('aria-pressed', wants()); bell.textContent = wants() ? 'Notifications on' : 'Notify me'; } };
  bell?.addEventListener('click', async () => {
    const on = wants();
    if (!on && Notification.permission !== 'granted') await Notification.requestPermission();
    localStorage.setItem('amb-notify', on ? 'no' : 'yes');
    showBell();
  });
  showBell();
  const notify = ({ title, text, href }) => {
    if (!wants() || !document.hidden) return;
    const note = new Notification(title, { body: text, tag: href });
    note.onclick = () => { focus(); location.assign(href); };
  };

  // Keyboard shortcuts: j and k move along the rows, / focuses the search, g and a letter opens a page, ? shows help.
  let going = 0;
  const step = (by) => {
    const rows = all('[data-row]').map((row) => row.matches('a') ? row : $('a', row)).filter((row) => row && row.offsetParent);
    const at = rows.indexOf(document.activeElement);
    rows[Math.min(rows.length - 1, Math.max(0, at < 0 ? (by > 0 ? 0 : rows.length - 1) : at + by))]?.focus();
  };
  addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === 'Escape' && typing(event.target)) { event.target.blur(); return; }
    if (typing(event.target)) return;
    const to = going && $(`[data-go="${CSS.escape(event.key)}"]`);
    going = 0;
    if (to) { location.assign(to.href); event.preventDefault(); return; }
    const act = {
      j: () => step(1), k: () => step(-1), g: () => { going = 1; setTimeout(() => { going = 0; }, 1500); },
      '/': () => ($('input[type=search]') ?? { focus: () => location.assign('/dashboard/conversations#search') }).focus(),
      w: () => location.assign('/dashboard/write'), '?': () => $('#help')?.showModal(),
    }[event.key];
    if (act) { act(); event.preventDefault(); }
  });

  // Submits a form only once.
  addEventListener('submit', (event) => {
    if (event.target.dataset.sent) { event.preventDefault(); return; }
    event.target.dataset.sent = '1';
  });
  addEventListener('pageshow', () => all('form[data-sent]').forEach((form) => delete form.dataset.sent));

  root.classList.add('js');
})();
