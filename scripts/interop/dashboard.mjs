// Stories of the dashboard in a real browser. Started by scripts/dashboard, which says where everything is.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdirSync, readFileSync, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createServer } from 'node:net';
import { join } from 'node:path';

const { OFFICE, WORK, TOOLS, CHROMIUM, OUT } = process.env;
const load = createRequire(join(TOOLS, 'package.json'));
const { chromium } = load('playwright-core');
const axe = readFileSync(load.resolve('axe-core/axe.min.js'), 'utf8');
const pictures = process.argv.includes('--screenshots');

// ---- the office

const port = await new Promise((done) => {
  const probe = createServer().listen(0, '127.0.0.1', () => { const { port } = probe.address(); probe.close(() => done(port)); });
});
const base = `http://127.0.0.1:${port}`;
let office;
const open = () => new Promise((done, fail) => {
  office = spawn(OFFICE, [`127.0.0.1:${port}`, `sqlite:${join(WORK, 'mail.db')}`, join(WORK, 'token')], { stdio: ['ignore', 'pipe', 'pipe'] });
  let said = '';
  office.stderr.on('data', (text) => { said += text; });
  office.stdout.on('data', (text) => { if (String(text).includes('listening on')) done(); });
  office.on('exit', (code) => fail(new Error(`the office ended with ${code}: ${said}`)));
});
const close = () => new Promise((done) => { office.removeAllListeners('exit'); office.on('exit', done); office.kill('SIGINT'); });

const call = async (path, body, key, headers = {}, method = body === undefined ? 'GET' : 'POST') => {
  const answer = await fetch(base + path, { method, headers: { 'Content-Type': 'application/json', ...(key ? { 'X-API-Key': key } : {}), ...headers }, body: body === undefined ? undefined : JSON.stringify(body) });
  const text = await answer.text();
  assert(answer.ok, `${path}: ${answer.status} ${text}`);
  return text ? JSON.parse(text) : null;
};
const send = (key, to, subject, content, more = {}) => call('/messages/send', { to, subject, content, ...more }, key);

// ---- the tests

const done = [];
const test = async (name, tell) => {
  const from = Date.now();
  await tell();
  done.push(name);
  console.log(`ok  ${name} (${((Date.now() - from) / 1000).toFixed(1)} s)`);
};
const complaints = [];
const watch = (page) => {
  page.on('console', (message) => { if (/Content Security Policy|Refused to/.test(message.text())) complaints.push(message.text()); });
  page.on('pageerror', (error) => complaints.push(String(error)));
  page.on('dialog', (dialog) => { complaints.push(`a dialog: ${dialog.message()}`); dialog.dismiss(); });
  page.on('request', (request) => { if (!request.url().startsWith(base)) complaints.push(`a request to ${request.url()}`); });
};
const pages = () => ['/dashboard', '/dashboard/conversations', `/dashboard/conversations/${test.session}`, '/dashboard/tasks', `/dashboard/tasks/${test.task}`, '/dashboard/network', '/dashboard/agents', '/dashboard/agents/coder', '/dashboard/groups', '/dashboard/transcripts/coder/standup', '/dashboard/connections', '/dashboard/write', '/dashboard/health'];

await open();
let browser;
try {
  const token = readFileSync(join(WORK, 'token'), 'utf8');
  const { api_key: pat } = await call('/household/person', { name: 'pat' }, null, { 'X-Household-Token': token });
  const register = async (name, more = {}) => (await call('/agents/register', { name, household_token: token, ...more })).api_key;
  const coder = await register('coder', { description: 'Writes Rust, and tests for it', capabilities: ['rust', 'review'] });
  const tester = await register('tester', { description: 'Runs everything twice' });
  const writer = await register('writer', { description: 'Keeps the documentation readable' });
  const scout = (await call('/agents/register', { name: 'scout' })).api_key;
  const link = async () => (await call('/dashboard/links', {}, pat)).url;

  browser = await chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox', '--disable-gpu'] });
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  const page = await context.newPage();
  watch(page);
  const first = await link();

  await test('a link signs in, and is refused the second time', async () => {
    await page.goto(first);
    await page.waitForURL(`${base}/dashboard`);
    await page.getByRole('heading', { name: 'Overview' }).waitFor();
    const other = await browser.newContext();
    const again = await other.newPage();
    assert.equal((await again.goto(first)).status(), 410);
    assert.equal((await again.goto(`${base}/dashboard`)).status(), 401);
    await other.close();
  });

  await test('mail arrives without reloading', async () => {
    await page.evaluate(() => { window.same = true; });
    test.session = (await send(coder, 'tester', 'Release 1.4', 'The build is green. Could you run the **long** tests?\n\n- with PostgreSQL\n- with two replicas')).session_id;
    await page.locator('#stream').getByText('The build is green').waitFor();
    assert(await page.evaluate(() => window.same), 'the page was not loaded again');
    await send(tester, 'coder', 'Release 1.4', 'Both pass. `history` took 41 s, as before.', { session_id: test.session });
    await page.locator('#stream').getByText('Both pass').waitFor();
  });

  await test('a connection is approved with its code', async () => {
    const { verification_code: code } = await call('/connections/request', { target_agent_name: 'coder', message: 'I found a crash in your parser' }, scout);
    await page.locator('#needs').getByText('scout wants to connect with coder').waitFor();
    await page.goto(`${base}/dashboard/connections`);
    await page.getByLabel('Code that scout told you').fill(code);
    await page.getByRole('button', { name: 'Approve' }).click();
    await page.getByText('Approved: they are connected now.').waitFor();
    await send(scout, 'coder', 'A crash', 'With an empty file it panics.');
  });

  await test('the person writes and sees the answer', async () => {
    await page.goto(`${base}/dashboard/write?to=coder`);
    await page.getByLabel('Subject').fill('Plan for today');
    await page.getByRole('textbox', { name: 'Message' }).fill('What will you do first?');
    await page.getByRole('button', { name: 'Send' }).click();
    await page.getByText('Sent.').waitFor();
    const inbox = await call('/inbox', undefined, coder);
    const mine = inbox.sessions.find((session) => session.subject === 'Plan for today');
    assert.equal(mine.other_agent_name, 'pat');
    await send(coder, 'pat', 'Plan for today', 'The crash that scout found, then the release.', { session_id: mine.session_id });
    await page.locator('#exchange').getByText('then the release').waitFor();
    await page.getByRole('textbox', { name: 'Message' }).fill('Good. Go on.');
    await page.getByRole('button', { name: 'Send' }).click();
    await page.locator('#exchange').getByText('Good. Go on.').waitFor();
  });

  await test('a task is followed across the board', async () => {
    const given = await send(coder, 'writer', 'Write the release notes', 'From the change log, for people.', { kind: 'task', deadline_in: 5400 });
    test.task = given.task.id;
    await page.goto(`${base}/dashboard/tasks`);
    const lane = (name) => page.locator('.lane', { has: page.getByRole('heading', { name: new RegExp(`^${name}`) }) });
    await lane('Waiting').getByText('Write the release notes').waitFor();
    for (const [state, name] of [['accepted', 'Accepted'], ['working', 'In work']]) {
      await call(`/tasks/${test.task}/state`, { state }, writer);
      await lane(name).getByText('Write the release notes').waitFor();
    }
    const piece = await send(writer, 'tester', 'Check the examples', 'Run each command of the notes.', { kind: 'task', relay_of: given.message_id, deadline_in: 3600 });
    await call(`/tasks/${piece.task.id}/state`, { state: 'completed', note: 'All nine run.' }, tester);
    await lane('Done').getByText('Check the examples').waitFor();
    await page.goto(`${base}/dashboard/tasks/${test.task}`);
    await page.locator('#chain').getByText('Check the examples').waitFor();
  });

  await test('an agent is paused: its mail waits, and arrives when it is resumed', async () => {
    const { cursor } = await call('/events', undefined, tester);
    await page.goto(`${base}/dashboard/agents/tester`);
    await page.getByRole('button', { name: 'Pause' }).click();
    await page.getByText('Paused: its mail is accepted').waitFor();
    await page.locator('#presence').getByText('paused by pat').waitFor();
    const sent = await send(coder, 'tester', 'Release 1.4', 'This one waits.', { session_id: test.session });
    assert.equal(sent.paused, true);
    const told = await call(`/events?since=${cursor}`, undefined, tester);
    assert.deepEqual(told.events.map((event) => event.act), ['paused'], 'nothing after the pause');
    assert.deepEqual((await call('/messages/claim', {}, tester)).messages, []);
    await page.goto(`${base}/dashboard`);
    await page.locator('.agent', { hasText: 'tester' }).getByText('paused').waitFor();
    await page.goto(`${base}/dashboard/agents/tester`);
    await page.getByRole('button', { name: 'Resume' }).click();
    await page.getByText('Resumed: what waited is there now.').waitFor();
    const after = await call(`/events?since=${told.cursor}`, undefined, tester);
    assert.deepEqual(after.events.map((event) => event.content ?? event.act), ['This one waits.', 'resumed']);
  });

  await test('a failed wake-up is on the overview without reloading, and gone when the client is woken', async () => {
    const report = (state, more) => call('/agents/me/wake', { session: '0f'.repeat(16), client: 'claude', door: 'claude inbox socket', state, rung: 0, held: 0, failed: 0, ...more }, writer, {}, 'PUT');
    await report('ready', {});
    await send(coder, 'writer', 'Docs', 'Are you there?');
    await page.goto(`${base}/dashboard`);
    await page.locator('#live-state[data-state=on]').waitFor();
    await page.evaluate(() => { window.same = true; });
    await report('failed', { reason: 'client_gone', failed: 1 });
    const need = page.locator('#needs').getByText('writer has mail and is not woken');
    await need.waitFor();
    assert(await page.evaluate(() => window.same), 'the page was not loaded again');
    await page.locator('#needs').getByText('amb wake test').waitFor();
    await need.click();
    await page.waitForURL(`${base}/dashboard/agents/writer#wake`);
    const wake = page.locator('#wake');
    await wake.getByText('claude inbox socket: nobody is behind the door').waitFor();
    await wake.getByText('0 rung, 0 held, 1 failed').waitFor();
    await wake.getByText('amb --as writer wake status').waitFor();
    await page.goto(`${base}/dashboard`);
    await need.waitFor();
    await page.locator('#live-state[data-state=on]').waitFor();
    await report('heard', { rung: 1, failed: 1 });
    await need.waitFor({ state: 'detached' });
    await page.goto(`${base}/dashboard/health`);
    await page.getByRole('heading', { name: 'Wake-ups' }).waitFor();
  });

  await test('a task is given to another, then canceled, and a runaway conversation ended', async () => {
    const given = await send(coder, 'tester', 'Measure it again', 'Ten times.', { kind: 'task' });
    await page.goto(`${base}/dashboard/tasks/${given.task.id}`);
    await page.getByText('Give it to another').click();
    await page.getByLabel('Agent of your household').fill('writer');
    await page.getByRole('button', { name: 'Give it' }).click();
    await page.getByText('Given to another agent').waitFor();
    const got = await call('/messages/claim', { limit: 100 }, writer);
    const original = (message) => message.parts[0].text === 'Ten times.' && message.task.id === given.task.id;
    assert(got.messages.some(original), 'new mail with the original text');
    await page.getByText('Cancel it').click();
    await page.getByLabel('Why (both sides are told)').fill('measured enough');
    await page.getByRole('button', { name: 'Cancel the task' }).click();
    await page.locator('#task').getByText('canceled by pat: measured enough').waitFor();
    assert.equal((await call(`/tasks/${given.task.id}`, undefined, coder)).canceled_by, 'pat');
    const loop = await send(coder, 'writer', 'Thanks', 'Thank you!');
    await page.goto(`${base}/dashboard/conversations/${loop.session_id}`);
    await page.getByText('End', { exact: true }).click();
    await page.getByRole('button', { name: 'End this conversation' }).click();
    await page.getByText('pat ended this conversation').waitFor();
    await assert.rejects(send(writer, 'coder', 'Thanks', 'No, thank you!'), /410.*pat ended this conversation/);
  });

  await test('two browsers at once see the same', async () => {
    const other = await browser.newContext();
    const second = await other.newPage();
    watch(second);
    await second.goto(await link());
    await second.waitForURL(`${base}/dashboard`);
    await page.goto(`${base}/dashboard`);
    await send(writer, 'coder', 'Docs', 'Seen by two at once');
    await Promise.all([page, second].map((each) => each.locator('#stream').getByText('Seen by two at once').waitFor()));
    await other.close();
  });

  await test('after a restart nothing is missed', async () => {
    await page.goto(`${base}/dashboard`);
    await page.locator('#live-state[data-state=on]').waitFor();
    await close();
    await page.locator('#live-state[data-state=off]').waitFor();
    await open();
    // Before the page has come back, as far as it is quick enough.
    await send(writer, 'pat', 'While you were away', 'Sent right after the restart');
    await page.locator('#stream').getByText('Sent right after the restart').waitFor();
    await page.locator('#live-state[data-state=on]').waitFor();
  });

  await test('keys go from page to page', async () => {
    await page.goto(`${base}/dashboard`);
    await page.keyboard.press('g');
    await page.keyboard.press('c');
    await page.waitForURL(`${base}/dashboard/conversations`);
    await page.keyboard.press('j');
    await page.keyboard.press('Enter');
    await page.waitForURL(/conversations\/[0-9a-f-]{36}/);
    await page.keyboard.press('?');
    await page.getByRole('heading', { name: 'Keys' }).waitFor();
    await page.keyboard.press('Escape');
  });

  // Elsewhere something changes: the page shows it, and what the person has before them stays.
  const stays = async () => {
    await page.locator('#live-state[data-state=on]').waitFor();
    await page.evaluate(() => { window.same = true; });
  };
  const stayed = async () => assert(await page.evaluate(() => window.same), 'the page was not loaded again');
  const ends = (session) => call(`/sessions/${session}/end`, {}, pat);

  await test('a connection is requested, and its code is shown until the other side approves', async () => {
    const ally = (await call('/agents/register', { name: 'ally' })).api_key;
    await page.goto(`${base}/dashboard/connections`);
    await page.getByLabel('For', { exact: true }).selectOption('writer');
    await page.getByLabel('With', { exact: true }).fill('no such name');
    await page.getByRole('button', { name: 'Ask', exact: true }).click();
    await page.locator('.flash.bad').getByText('With: an agent name').waitFor();
    assert.equal(await page.getByLabel('For', { exact: true }).inputValue(), 'writer');
    assert.equal(await page.getByLabel('With', { exact: true }).inputValue(), 'no such name');
    await page.getByLabel('With', { exact: true }).fill('ally');
    await page.getByRole('button', { name: 'Ask', exact: true }).click();
    await page.locator('.flash').getByText('Asked.').waitFor();
    const asked = page.getByRole('region', { name: 'Asked, not answered yet' });
    const code = await asked.locator('code.command').innerText();
    await page.reload();
    assert.equal(await asked.locator('code.command').innerText(), code, 'a reload shows it again');
    assert.equal(await page.getByText('Asked.', { exact: false }).and(page.locator('.flash')).count(), 0, 'and not the message');
    await stays();
    await call('/connections/approve', { verification_code: code }, ally);
    const row = page.getByRole('region', { name: 'Connected' }).getByRole('row', { name: /writer.*ally/ });
    await row.waitFor();
    await asked.waitFor({ state: 'detached' });
    await call('/connections/revoke', { agent_name: 'writer' }, ally);
    await row.waitFor({ state: 'detached' });
    await stayed();
  });

  await test('what is typed, focused or selected survives what happens meanwhile', async () => {
    const [guest, other] = await Promise.all(['guest', 'other'].map(async (name) => (await call('/agents/register', { name })).api_key));
    const ask = (key, name) => call('/connections/request', { target_agent_name: name }, key);
    await ask(guest, 'coder');
    await ask(guest, 'tester');
    await page.goto(`${base}/dashboard/connections`);
    const ids = await page.evaluate(() => [...document.querySelectorAll('[id]')].map((one) => one.id));
    assert.equal(new Set(ids).size, ids.length, 'one stranger may ask two agents');
    await stays();
    const first = page.locator('#requests li', { hasText: 'guest wants to talk with tester' });
    await first.getByLabel('Code that guest told you').fill('AB-1');
    await first.getByRole('button', { name: 'Refuse' }).focus();
    await ask(other, 'tester');
    await page.locator('#requests').getByText('other wants to talk with tester').waitFor();
    assert.equal(await first.getByLabel('Code that guest told you').inputValue(), 'AB-1');
    assert(await first.getByRole('button', { name: 'Refuse' }).evaluate((button) => button === document.activeElement), 'the focus');
    await call('/connections/reject', { agent_name: 'guest' }, coder);
    await page.locator('#requests li', { hasText: 'guest wants to talk with coder' }).waitFor({ state: 'detached' });
    assert.equal(await first.getByLabel('Code that guest told you').inputValue(), 'AB-1');
    await stayed();

    await page.goto(`${base}/dashboard/agents/tester`);
    await stays();
    await page.getByRole('button', { name: 'Pause' }).focus();
    await call('/household/members/tester/pause', {}, pat);
    await page.getByRole('button', { name: 'Resume' }).waitFor();
    assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Resume');
    await call('/household/members/tester/resume', {}, pat);
    await page.getByRole('button', { name: 'Pause' }).waitFor();

    const said = await send(coder, 'tester', 'Figures', '', { parts: [{ type: 'text', text: 'Read this sentence' }, { type: 'data', data: { runs: 9 } }] });
    await page.goto(`${base}/dashboard/conversations/${said.session_id}`);
    await stays();
    const summary = page.getByText('Data, ');
    await summary.click();
    await page.getByText('Read this sentence').selectText();
    await send(tester, 'coder', 'Figures', 'Nine runs, then.', { session_id: said.session_id });
    await page.locator('#exchange').getByText('Nine runs, then.').waitFor();
    assert.equal(await page.evaluate(() => String(getSelection()).trim()), 'Read this sentence');
    assert(await summary.evaluate((one) => one === document.activeElement && one.parentElement.open), 'the open data');
    await stayed();
  });

  await test('a conversation shows its tasks and its end as they change', async () => {
    const given = await send(coder, 'writer', 'Count the words', 'All of them.', { kind: 'task' });
    await call(`/tasks/${given.task.id}/state`, { state: 'working' }, writer);
    await page.goto(`${base}/dashboard/conversations/${given.session_id}`);
    await stays();
    const task = page.locator('main > .flash', { hasText: 'Count the words' });
    await task.getByText('working').waitFor();
    await call(`/tasks/${given.task.id}/state`, { state: 'completed' }, writer);
    await task.getByText('completed').waitFor();
    await ends(given.session_id);
    await page.getByText('pat ended this conversation').waitFor();
    await page.getByText('End', { exact: true }).waitFor({ state: 'detached' });
    await page.getByRole('textbox', { name: 'Message' }).waitFor({ state: 'detached' });
    await stayed();
  });

  await test('a reply that is refused is not lost', async () => {
    const { session_id: session } = await send(coder, 'pat', 'Short', 'This will end.');
    await page.goto(`${base}/dashboard/conversations/${session}`);
    await stays();
    const message = page.getByRole('textbox', { name: 'Message' });
    await message.fill('Typed with care');
    await ends(session);
    await page.locator('#ended').getByText('pat ended this conversation').waitFor();
    assert.equal(await message.inputValue(), 'Typed with care');
    await page.getByRole('button', { name: 'Send' }).click();
    await page.locator('.flash.bad').getByText('ended').waitFor();
    assert.equal(await message.inputValue(), 'Typed with care');
    assert.equal(page.url(), `${base}/dashboard/conversations/${session}`);
    await stays();
    // The second refresh begins when the first is done.
    for (const text of ['one', 'two']) await Promise.all([page.waitForResponse(page.url()), send(coder, 'writer', 'Refresh', text)]);
    assert.equal(await message.inputValue(), 'Typed with care', 'nor by the next refresh');
  });

  await test('a new key is shown once, and a reload does not end it', async () => {
    const before = await register('rotated');
    await page.goto(`${base}/dashboard/agents/rotated`);
    await page.getByText('New key', { exact: true }).click();
    await page.getByRole('button', { name: 'End its keys, show a new one' }).click();
    const shown = page.locator('.flash', { hasText: 'shown this once' });
    const key = await shown.locator('code').first().innerText();
    await shown.getByText('amb key import rotated').waitFor();
    await stays();
    await send(coder, 'rotated', 'Hello', 'A refresh leaves the key where it is');
    await page.locator('#talks').getByText('A refresh leaves the key').waitFor();
    assert.equal(await shown.locator('code').first().innerText(), key);
    await page.reload();
    assert.equal(page.url(), `${base}/dashboard/agents/rotated`);
    assert.equal((await call('/agents/me', undefined, key)).name, 'rotated');
    await assert.rejects(call('/agents/me', undefined, before), /401/);
    // Without JavaScript a reload repeats the form.
    const plain = await browser.newContext({ javaScriptEnabled: false });
    const reader = await plain.newPage();
    await reader.goto(await link());
    await reader.waitForURL(`${base}/dashboard`);
    await reader.goto(`${base}/dashboard/agents/rotated`);
    await reader.getByText('New key', { exact: true }).click();
    await reader.getByRole('button', { name: 'End its keys, show a new one' }).click();
    const second = await reader.locator('.flash code').first().innerText();
    await reader.reload();
    await reader.getByText('nothing has changed').waitFor();
    assert.equal((await call('/agents/me', undefined, second)).name, 'rotated');
    await plain.close();
  });

  await test('signing out closes the other pages of the browser at once', async () => {
    const away = await browser.newContext();
    const [left, right] = [await away.newPage(), await away.newPage()];
    await left.goto(await link());
    await left.waitForURL(`${base}/dashboard`);
    await right.goto(`${base}/dashboard/agents`);
    await right.locator('#live-state[data-state=on]').waitFor();
    await left.getByRole('button', { name: 'Sign out' }).click();
    await right.getByRole('heading', { name: 'Sign in' }).waitFor({ timeout: 5000 });
    assert.equal(await right.getByText('coder').count(), 0, 'nothing of the household is left');
    await away.close();
  });

  await test('an unknown page is a page, and the overview leads to each request', async () => {
    assert.equal((await page.goto(`${base}/dashboard/nope`)).status(), 404);
    await page.getByRole('heading', { name: 'There is nothing here' }).waitFor();
    await page.goto(`${base}/dashboard`);
    await page.locator('#needs').getByText('other wants to connect with tester').click();
    await page.waitForURL(/connections#/);
    assert(await page.locator(':target').getByText('other wants to talk with tester').isVisible());
  });

  await test('pages fit a narrow screen', async () => {
    await register('a-long-one', { capabilities: ['x'.repeat(55), 'review'] });
    await page.setViewportSize({ width: 390, height: 760 });
    for (const path of [...pages(), '/dashboard/agents/a-long-one']) {
      await page.goto(base + path);
      assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 390, path);
    }
    await page.setViewportSize({ width: 1280, height: 900 });
  });

  const hostile = ['<script>document.title="owned"</script>', '<img src=x onerror="document.title=\'owned\'">', '[x](javascript:document.title="owned")', '"><svg onload=document.title="owned">', '</textarea></div></main><style>*{display:none!important}</style>', '\u202egnp.exe\u202c', 'z\u0336\u0321a\u0334l\u0310'.repeat(40) + '\u0321\u0336\u0310'.repeat(200), 'x'.repeat(9000), '<meta http-equiv=refresh content="0;url=https://evil.example">', '<base href=https://evil.example/>', '<form action=https://evil.example><button>Send</button></form>'];
  await test('hostile mail changes nothing but its own text', async () => {
    for (const [index, text] of pictures ? [] : hostile.entries()) {
      await send(coder, 'tester', `${index} ${text}`.slice(0, 250), text, { parts: [{ type: 'text', text }, { type: 'data', data: { text } }, { type: 'file', path: text.slice(0, 200) }] });
    }
    const long = pictures ? { session_id: test.session } : await send(coder, 'tester', 'One long line', '', { parts: [{ type: 'text', text: 'y'.repeat(99_000) }] });
    await call('/transcripts/standup', { role: 'user', sender: pictures ? 'kim' : hostile[1], content: pictures ? 'What did you do, what will you do?' : hostile[0] }, coder);
    await call('/transcripts/standup', { role: 'assistant', sender: 'coder', content: 'Yesterday: the parser. Today: the release.' }, coder);
    await call('/groups', { name: 'release-team' }, coder);
    const hits = await call('/inbox', undefined, tester);
    const sessions = hits.sessions.map((session) => `/dashboard/conversations/${session.session_id}`);
    for (const path of [...pages(), ...sessions, `/dashboard/conversations/${long.session_id}`]) {
      await page.goto(base + path);
      assert.notEqual(await page.title(), 'owned', path);
      assert.equal(await page.locator('nav a').first().isVisible(), true, `${path} is shown`);
      const box = await page.evaluate(() => ({ wide: document.documentElement.scrollWidth - document.documentElement.clientWidth, odd: document.querySelectorAll('main script, main style, main iframe, main img, main form[action^="http"], main a[href^="javascript"]').length }));
      assert.deepEqual(box, { wide: 0, odd: 0 }, path);
    }
  });

  await test('pages are read without JavaScript', async () => {
    const plain = await browser.newContext({ javaScriptEnabled: false });
    const reader = await plain.newPage();
    await send(writer, 'coder', 'Docs', 'The notes read well without a script, too');
    await reader.goto(await link());
    await reader.waitForURL(`${base}/dashboard`);
    await reader.getByText('The notes read well without a script, too').first().waitFor();
    for (const path of pages()) {
      assert.equal((await reader.goto(base + path)).status(), 200, path);
      assert((await reader.locator('main').innerText()).length > 40, path);
    }
    await reader.goto(`${base}/dashboard/conversations/${test.session}`);
    await reader.getByText('Both pass').waitFor();
    await plain.close();
  });

  await test('axe finds nothing on any page, light and dark', async () => {
    const told = [];
    for (const scheme of ['light', 'dark']) {
      await page.emulateMedia({ colorScheme: scheme });
      for (const path of pages()) {
        await page.goto(base + path);
        // Through the debugger's own world: the page's policy lets no script in.
        await page.evaluate(axe);
        const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
        told.push(...violations.map((found) => `${path} (${scheme}): ${found.id}: ${found.help}: ${found.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(' | ')}`));
      }
    }
    assert.deepEqual(told, []);
    await page.emulateMedia({ colorScheme: 'light' });
  });

  await test('pages are small and quick', async () => {
    const fresh = await browser.newContext();
    const visitor = await fresh.newPage();
    await visitor.goto(await link());
    await visitor.waitForURL(`${base}/dashboard`);
    for (const path of pages()) {
      await visitor.goto(base + path, { waitUntil: 'load' });
      await visitor.waitForFunction(() => performance.getEntriesByName('first-contentful-paint').length > 0);
      const { bytes, files, paint } = await visitor.evaluate(() => {
        const all = [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')];
        const own = all.filter((entry) => !entry.name.includes('/events') && entry.initiatorType !== 'fetch');
        return { bytes: own.reduce((sum, entry) => sum + entry.encodedBodySize, 0), files: own.length, paint: performance.getEntriesByName('first-contentful-paint')[0].startTime };
      });
      console.log(`    ${path.replace(/[0-9a-f-]{36}/, '…').padEnd(38)} ${(bytes / 1000).toFixed(1).padStart(6)} KB in ${files} files, first paint ${paint.toFixed(0)} ms`);
      assert(bytes < 60_000, `${path} has ${bytes} bytes`);
    }
    await fresh.close();
  });

  // Like hostile mail, not before pictures: it would fill every list.
  if (!pictures) await test('a flood of mail leaves the page responsive', async () => {
    await page.goto(`${base}/dashboard`);
    await page.locator('#live-state[data-state=on]').waitFor();
    await page.evaluate(() => {
      window.frames_ = { drawn: 0, late: 0, longest: 0 };
      let last = performance.now();
      const frame = (now) => { const took = now - last; last = now; window.frames_.drawn += 1; if (took > 50) window.frames_.late += 1; window.frames_.longest = Math.max(window.frames_.longest, took); requestAnimationFrame(frame); };
      requestAnimationFrame(frame);
      window.loads_ = performance.getEntriesByType('resource').length;
    });
    // Each request is mail to many, so that the office's part of a request does not bound how much happens on the page.
    const crowd = await Promise.all(Array.from({ length: 40 }, async (_, index) => ({ name: `crowd-${index}`, key: await register(`crowd-${index}`) })));
    const to = crowd.map((agent) => agent.name);
    const from = Date.now();
    let sent = 0;
    await Promise.all([coder, writer].map(async (key, lane) => {
      for (let turn = 0; Date.now() - from < 3000; turn += 1) {
        // Two senders together: 1,000 a second where the office keeps up, and not more.
        await call('/messages/send-many', { to, subject: `Load ${lane}`, content: `number ${sent}` }, key);
        sent += to.length;
        const early = sent - (Date.now() - from);
        if (early > 0) await new Promise((done) => { setTimeout(done, early); });
      }
    }));
    const seconds = (Date.now() - from) / 1000;
    await send(coder, 'tester', 'Load 0', 'the last of them');
    await page.locator('#stream').getByText('the last of them').waitFor();
    const { frames, looks } = await page.evaluate(() => ({ frames: window.frames_, looks: performance.getEntriesByType('resource').length - window.loads_ }));
    console.log(`    ${(sent / seconds).toFixed(0)} messages a second: ${frames.drawn} frames drawn, ${frames.late} late, longest ${frames.longest.toFixed(0)} ms, ${looks} looks at the office`);
    await Promise.all(crowd.map(({ key }) => fetch(`${base}/agents/me`, { method: 'DELETE', headers: { 'X-API-Key': key } })));
    assert(looks < seconds * 3 + 5, 'hints are put together');
  });

  assert.deepEqual(complaints, [], 'nothing was refused by the policy, thrown or asked for elsewhere');

  if (pictures) {
    mkdirSync(OUT, { recursive: true });
    const shots = [['overview', '/dashboard'], ['conversations', '/dashboard/conversations'], ['conversation', `/dashboard/conversations/${test.session}`], ['tasks', '/dashboard/tasks'], ['task', `/dashboard/tasks/${test.task}`], ['network', '/dashboard/network'], ['agents', '/dashboard/agents'], ['agent', '/dashboard/agents/coder'], ['groups', '/dashboard/groups'], ['transcript', '/dashboard/transcripts/coder/standup'], ['connections', '/dashboard/connections'], ['write', '/dashboard/write'], ['health', '/dashboard/health']];
    let total = 0;
    for (const scheme of ['light', 'dark']) {
      for (const [size, width, height] of [['wide', 1200, 760], ['narrow', 390, 760]]) {
        const shooter = await browser.newContext({ viewport: { width, height }, colorScheme: scheme, reducedMotion: 'reduce' });
        const shot = await shooter.newPage();
        await shot.goto(await link());
        await shot.waitForURL(`${base}/dashboard`);
        for (const [name, path] of shots) {
          await shot.goto(base + path);
          await shot.locator('#live-state[data-state=on]').waitFor({ state: 'attached' });
          const file = join(OUT, `${name}-${size}-${scheme}.jpg`);
          await shot.screenshot({ path: file, type: 'jpeg', quality: 60 });
          total += statSync(file).size;
        }
        await shooter.close();
      }
    }
    console.log(`ok  ${(total / 1e6).toFixed(2)} MB of pictures in docs/dashboard`);
  }
  console.log(`${done.length} tests passed`);
} finally {
  await browser?.close();
  await close();
}
