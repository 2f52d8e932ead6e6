// Two `amb mcp` processes, driven over stdio by both npm SDKs. Runs where the packages are installed; SEATS says how each
// agent's process is started.
import assert from 'node:assert/strict';
import { Client as OldClient } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport as OldStdio } from '@modelcontextprotocol/sdk/client/stdio.js';
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const office = JSON.parse(process.env.SEATS);
const me = { name: 'interop', version: '1' };
const makers = {
  'sdk 1': () => [new OldClient(me), OldStdio],
  'client 2 legacy': () => [new Client(me, { versionNegotiation: { mode: 'legacy' } }), StdioClientTransport],
  'client 2 auto': () => [new Client(me, { versionNegotiation: { mode: 'auto' } }), StdioClientTransport],
  'client 2 2026-07-28': () => [new Client(me, { versionNegotiation: { mode: { pin: '2026-07-28' } } }), StdioClientTransport],
};
const which = process.argv[2];
const called = new Set();

async function open(agent) {
  const [client, Stdio] = makers[which]();
  await client.connect(new Stdio({ ...office.seats[agent], stderr: 'inherit' }));
  const { tools } = await client.listTools();
  assert.equal(tools.length, 11);
  return {
    tools: tools.map((tool) => tool.name),
    close: () => client.close(),
    async call(name, args = {}) {
      called.add(name);
      const result = await client.callTool({ name, arguments: args });
      assert.ok(!result.isError, `${name}: ${JSON.stringify(result)}`);
      assert.ok(result.content[0].text && result.structuredContent, name);
      return result.structuredContent;
    },
    async fails(name, args = {}) {
      called.add(name);
      const result = await client.callTool({ name, arguments: args });
      assert.ok(result.isError, `${name} should have failed`);
      return result.content[0].text;
    },
  };
}

const [alice, bob] = [await open('alice'), await open('bob')];
if (office.connects) {
  const asked = await alice.call('mailbox_connect', { target_agent_name: 'bob', message: 'hello' });
  await bob.call('mailbox_approve', { code: asked.verification_code });
  assert.equal((await alice.call('mailbox_wait', { timeout_seconds: 30 })).timed_out, false);
} else {
  assert.match(await alice.fails('mailbox_connect', { target_agent_name: 'bob' }), /allow_from/);
  assert.match(await bob.fails('mailbox_approve', { code: 'XC-992' }), /allow_from/);
}
assert.equal((await alice.call('list_peers')).peers[0].agent_id, 'bob');
const sent = await alice.call('mailbox_send', { to: 'bob', subject: 'Plan', content: 'Hello Bob' });
assert.equal((await bob.call('mailbox_check')).unread, 1);
assert.equal((await bob.call('mailbox_read', { session_id: sent.session_id })).messages[0].content, 'Hello Bob');
const waits = alice.call('mailbox_wait', { timeout_seconds: 50 });
await bob.call('mailbox_send', { to: 'alice', subject: 'Plan', content: 'Hello Alice', session_id: sent.session_id, reply_to: sent.message_id });
assert.equal((await waits).messages[0].content, 'Hello Alice');
assert.equal((await alice.call('send_to_peer', { to: 'bob', message: 'ready' })).delivered_to.length, 1);
const task = await alice.call('mailbox_send', { to: 'bob', subject: 'Tests', content: 'Run them', kind: 'task' });
for (const [action, state] of [['accept', 'accepted'], ['working', 'working'], ['done', 'completed']]) {
  assert.equal((await bob.call('mailbox_task', { action, task_id: task.task.id })).tasks[0].state, state);
}
assert.equal((await alice.call('transcript_recent', { key: 'interop:chat' })).lines[0].content, 'hello group');
assert.equal((await alice.call('transcript_append', { key: 'interop:chat', content: 'hi', message_id: 'm-2' })).appended, true);
assert.deepEqual(alice.tools.filter((name) => !called.has(name)), []);
await alice.close();
await bob.close();
console.log(`ok   npm ${which.padEnd(19)} ${office.name.padEnd(9)} every tool called`);
