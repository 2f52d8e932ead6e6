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

  // A reload repeats neither a form nor the message about it.
  const address = new URL(body.dataset.address ?? location.href, location.href);
  address.searchParams.delete('done');
  if (address.href !== location.href || body.dataset.address) history.replaceState(null, '', address);

  // A refresh fetches the page again and changes only the nodes that differ, so that focus, selection, scroll positions
  // and open details stay. It leaves fields and elements with data-keep, and removes nothing that was typed.
  const main = $('#main');
  let busy = false, stale = false, timer = 0, last = 0;
  showTimes();
  setInterval(showTimes, 20000);
  const typing = (target) => target.closest?.('input, textarea, select, [contenteditable]');
  const fields = 'input:not([type=hidden]), textarea', fixed = `${fields}, select, [data-keep]`;
  const removable = (node) => !node.matches?.(fixed) && !(node.querySelectorAll && all(fields, node).some((field) => field.value !== field.defaultValue));
  const key = (node) => node.id || node.dataset?.key;
  // Nodes with the same name stand for each other, in order.
  const named = (node) => `${node.nodeName} ${key(node) ?? (node.matches?.('[data-keep]') ? '(kept)' : '')}`;
  const update = (old, fresh) => {
    if (old.isEqualNode(fresh)) return;
    if (old.nodeType !== Node.ELEMENT_NODE) { old.nodeValue = fresh.nodeValue; return; }
    if (old.matches(fixed)) return;
    for (const { name } of [...old.attributes]) if (name !== 'open' && !fresh.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    const left = Map.groupBy(old.childNodes, named), list = [...old.children].some(key);
    const pairs = [...fresh.childNodes].map((node) => [left.get(named(node))?.shift(), node]);
    for (const node of [...left.values()].flat()) if (removable(node)) node.remove();
    const twins = new Set(pairs.map(([twin]) => twin));
    let at = old.firstChild;
    for (const [twin, node] of pairs) {
      while (at && !twins.has(at)) at = at.nextSibling;
      if (twin && twin === at) at = at.nextSibling;
      else old.insertBefore(twin ?? node, at);
      if (twin) update(twin, node);
      else if (list && key(node)) node.classList.add('new');
    }
  };
  const leave = () => location.reload();
  const refresh = async () => {
    if (busy || document.hidden) { stale = true; return; }
    busy = true; stale = false; last = Date.now();
    try {
      const response = await fetch(location.href, { credentials: 'same-origin', cache: 'no-store' });
      if (response.status === 401) { leave(); return; }
      if (!response.ok) return;
      const fresh = $('#main', new DOMParser().parseFromString(await response.text(), 'text/html'));
      showTimes(fresh);
      const focused = document.activeElement;
      update(main, fresh);
      // Moved elements lose the focus; that of a removed one would go to the beginning of the page.
      if (document.activeElement !== focused) (focused.isConnected ? focused : main).focus({ preventScroll: true });
    } catch { /* Offline: the stream reconnects and triggers a refresh. */ } finally {
      busy = false;
      if (stale) soon();
    }
  };
  // Debounces refreshes: at most one in 700 ms.
  const soon = () => { clearTimeout(timer); timer = setTimeout(refresh, Math.max(60, last + 700 - Date.now())); };
  document.addEventListener('visibilitychange', () => { if (!document.hidden && stale) soon(); });

  const shown = $('#live-state');
  const labels = { on: 'Live', off: 'Reconnecting', full: 'Too many pages are open' };
  const state = (now) => {
    if (!shown || shown.dataset.state === now) return;
    shown.dataset.state = now; shown.hidden = false;
    $('.live-text', shown).textContent = labels[now];
  };
  const listen = () => {
    const stream = new EventSource(body.dataset.events);
    stream.addEventListener('open', () => state('on'));
    // Sent once this page gets hints: refreshes what changed since the page was rendered.
    stream.addEventListener('hello', soon);
    stream.addEventListener('error', () => {
      state('off');
      // Refused, after which the browser does not try again: the refresh finds out whether it is signed out.
      if (stream.readyState === EventSource.CLOSED) { soon(); setTimeout(listen, 5000); }
    });
    stream.addEventListener('changed', soon);
    // The browser was signed out: the page shows nothing any more.
    stream.addEventListener('bye', () => { stream.close(); leave(); });
    stream.addEventListener('full', () => { stream.close(); state('full'); });
    stream.addEventListener('mail', (event) => { soon(); notify(JSON.parse(event.data)); });
    addEventListener('pagehide', () => stream.close());
  };
  if (body.dataset.events && window.EventSource) { listen(); setInterval(soon, 20000); }

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
  let sent = new WeakSet();
  addEventListener('submit', (event) => {
    if (sent.has(event.target)) event.preventDefault();
    sent.add(event.target);
  });
  addEventListener('pageshow', () => { sent = new WeakSet(); });

  root.classList.add('js');
})();
