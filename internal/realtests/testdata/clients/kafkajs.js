// kafkajs: what a program does with brokers. See README.md.
//
// usage: node kafkajs.js BOOTSTRAP, with the package kafkajs in NODE_PATH
'use strict';
const { Kafka, CompressionTypes, ConfigResourceTypes, PartitionAssigners, logLevel } = require('kafkajs');

const TOPIC = 'kafkajs', GROUP = 'kafkajs-group', PARTITIONS = 3, EACH = 200, KEYS = 20, PATIENCE = 60000;
const kafka = new Kafka({ clientId: 'kafkajs', brokers: process.argv[2].split(','), logLevel: logLevel.NOTHING, retry: { initialRetryTime: 50, retries: 20 } });
const admin = kafka.admin();

function check(condition, what) {
  if (!condition) throw new Error(typeof what === 'string' ? what : JSON.stringify(what));
}

async function awaitUntil(what, condition) {
  for (const deadline = Date.now() + PATIENCE; ;) {
    const last = await condition();
    if (last === true) return;
    check(Date.now() < deadline, `timed out waiting until ${what}; last: ${JSON.stringify(last)}`);
    await new Promise((done) => { setTimeout(done, 100); });
  }
}

async function create() {
  const topics = [{ topic: TOPIC, numPartitions: PARTITIONS, replicationFactor: 3, configEntries: [{ name: 'min.insync.replicas', value: '2' }] }];
  check(await admin.createTopics({ topics }), 'the topic was there before');
  check(await admin.createTopics({ topics }) === false, 'the topic was created twice');
  await awaitUntil('all partitions are led and in sync', async () => {
    const [t] = (await admin.fetchTopicMetadata({ topics: [TOPIC] })).topics;
    return (t.partitions.length === PARTITIONS && t.partitions.every((p) => p.leader > 0 && p.isr.length === 3)) || t.partitions;
  });
}

async function produce(form, acks, compression, idempotent) {
  const producer = kafka.producer({ idempotent });
  await producer.connect();
  for (let i = 0; i < EACH; i += 20) {
    const messages = [];
    for (let n = i; n < i + 20; n++) messages.push({ key: `${n % KEYS}`, value: `${form}/${n}`, headers: { form } });
    await producer.send({ topic: TOPIC, acks, compression, messages });
  }
  await producer.disconnect();
}

async function consume(total) {
  const consumer = kafka.consumer({ groupId: 'kafkajs-reader', sessionTimeout: 10000, heartbeatInterval: 500, maxWaitTimeInMs: 200 });
  const nextOffset = {}, nextValue = {};
  let n = 0, wrong = null;
  await consumer.connect();
  await consumer.subscribe({ topics: [TOPIC], fromBeginning: true });
  await consumer.run({
    eachMessage: async ({ partition, message }) => {
      const [form, i] = message.value.toString().split('/');
      const key = `${form} ${message.key}`;
      if (Number(message.offset) !== (nextOffset[partition] || 0)) wrong = wrong || `partition ${partition}: offset ${message.offset}, want ${nextOffset[partition] || 0}`;
      if (Number(i) !== (nextValue[key] === undefined ? Number(message.key) : nextValue[key])) wrong = wrong || `${key}: value ${i} is out of order`;
      if (message.headers.form.toString() !== form) wrong = wrong || `headers of ${key}`;
      nextOffset[partition] = Number(message.offset) + 1;
      nextValue[key] = Number(i) + KEYS;
      n++;
    },
  });
  await awaitUntil('all is read', () => wrong || n === total || n);
  await consumer.disconnect();
  check(!wrong, wrong);
  const ends = await admin.fetchTopicOffsets(TOPIC);
  check(ends.reduce((sum, p) => sum + Number(p.high), 0) === total, ends);
}

async function member(counts, id) {
  const consumer = kafka.consumer({ groupId: GROUP, sessionTimeout: 10000, heartbeatInterval: 500, maxWaitTimeInMs: 200, partitionAssigners: [PartitionAssigners.roundRobin] });
  const m = { consumer, share: 0 };
  consumer.on(consumer.events.GROUP_JOIN, (e) => { m.share = (e.payload.memberAssignment[TOPIC] || []).length; });
  await consumer.connect();
  await consumer.subscribe({ topics: [TOPIC], fromBeginning: true });
  await consumer.run({ autoCommitThreshold: 10, eachMessage: async () => { counts[id] = (counts[id] || 0) + 1; } });
  return m;
}

async function group(total) {
  const counts = {};
  const a = await member(counts, 'a');
  const b = await member(counts, 'b');
  await awaitUntil('two members share the partitions', () => (a.share + b.share === PARTITIONS && a.share > 0 && b.share > 0) || [a.share, b.share]);
  const [d] = (await admin.describeGroups([GROUP])).groups;
  check(d.state === 'Stable' && d.members.length === 2, d);
  await b.consumer.disconnect();
  await awaitUntil('the other has them all', () => a.share === PARTITIONS || a.share);
  await awaitUntil('all is read', () => counts.a + (counts.b || 0) >= total || counts);
  await awaitUntil('all is committed', async () => await sumCommitted() === total || sumCommitted());
  await a.consumer.disconnect();
}

async function sumCommitted() {
  const [offsets] = await admin.fetchOffsets({ groupId: GROUP, topics: [TOPIC] });
  return offsets.partitions.reduce((sum, p) => sum + Math.max(0, Number(p.offset)), 0);
}

async function committed(total) {
  check(await sumCommitted() === total, await sumCommitted());
  const counts = {};
  const c = await member(counts, 'c');
  await awaitUntil('it has its assignment', () => c.share === PARTITIONS || c.share);
  const extra = kafka.producer();
  await extra.connect();
  await extra.send({ topic: TOPIC, acks: -1, messages: [0, 1, 2].map((partition) => ({ partition, value: 'one more' })) });
  await extra.disconnect();
  await awaitUntil('it reads on', () => counts.c >= PARTITIONS || counts);
  await c.consumer.disconnect();
  check(counts.c === PARTITIONS, `it read ${counts.c} records, want ${PARTITIONS}`);
}

async function configs() {
  const of = async () => {
    const { resources: [r] } = await admin.describeConfigs({ resources: [{ type: ConfigResourceTypes.TOPIC, name: TOPIC }] });
    return Object.fromEntries(r.configEntries.map((e) => [e.configName, e.configValue]));
  };
  check((await of())['min.insync.replicas'] === '2', 'min.insync.replicas');
  await admin.alterConfigs({ resources: [{ type: ConfigResourceTypes.TOPIC, name: TOPIC, configEntries: [{ name: 'retention.ms', value: '3600000' }] }] });
  await awaitUntil('the change is told', async () => {
    const c = await of();
    return (c['retention.ms'] === '3600000' && c['min.insync.replicas'] === '1') || c;
  });
}

async function partitions() {
  await admin.createPartitions({ topicPartitions: [{ topic: TOPIC, count: PARTITIONS + 1 }] });
  await awaitUntil('there is one more', async () => (await admin.fetchTopicMetadata({ topics: [TOPIC] })).topics[0].partitions.length === PARTITIONS + 1);
}

async function groups() {
  const listed = (await admin.listGroups()).groups.map((g) => g.groupId);
  check(listed.includes(GROUP), listed);
  const [d] = (await admin.describeGroups([GROUP])).groups;
  check(d.state === 'Empty', d);
  await admin.deleteGroups([GROUP]);
}

async function remove() {
  await admin.deleteTopics({ topics: [TOPIC] });
  await awaitUntil('the topic is gone', async () => !(await admin.listTopics()).includes(TOPIC));
}

(async () => {
  await admin.connect();
  const total = 4 * EACH;
  const steps = [
    ['create', create],
    ['acks=0', () => produce('acks=0', 0)],
    ['acks=1', () => produce('acks=1', 1, CompressionTypes.GZIP)],
    ['acks=all', () => produce('acks=all', -1)],
    ['idempotent', () => produce('idempotent', -1, CompressionTypes.GZIP, true)],
    ['consume', () => consume(total)], ['group', () => group(total)], ['committed', () => committed(total)],
    ['configs', configs], ['partitions', partitions], ['groups', groups], ['delete', remove],
  ];
  for (const [name, step] of steps) {
    const began = Date.now();
    try {
      await step();
    } catch (e) {
      console.error(`FAIL ${name}: ${e.stack}`);
      process.exit(1);
    }
    console.log(`ok ${name} ${(Date.now() - began) / 1000} s`);
  }
  await admin.disconnect();
})();
