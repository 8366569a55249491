// Does what clients of Kafka do, with kafkajs at its default settings, and prints what came of it as JSON.
// Arguments: the address of the server, the name of a topic that does not exist yet, and "flows"; afterwards "resume".
"use strict";
const { setTimeout: sleep } = require("node:timers/promises");
const { Kafka, logLevel } = require("kafkajs");

const [address, topic, part] = process.argv.slice(2);
const kafka = new Kafka({ brokers: [address], logLevel: logLevel.NOTHING });
const START = 1_700_000_000_000;
const hex = (bytes) => (bytes === null ? null : Buffer.from(bytes).toString("hex"));
const numbers = (list) => list.map(Number).sort((a, b) => a - b);

// A record that was received.
function shown(partition, { offset, key, value, headers, timestamp }) {
  const pairs = Object.entries(headers).flatMap(([name, found]) =>
    [found].flat().map((each) => [name, hex(each)]),
  );
  return [partition, Number(offset), hex(key), hex(value), pairs, Number(timestamp)];
}

// A consumer that keeps what it receives.
class Member {
  constructor(group, name = topic) {
    this.consumer = kafka.consumer({ groupId: `${topic}-${group}` });
    this.name = name;
    this.records = [];
    this.partitions = [];
    this.consumer.on(this.consumer.events.GROUP_JOIN, ({ payload }) => {
      this.partitions = payload.memberAssignment[name] ?? [];
    });
  }

  async start() {
    await this.consumer.connect();
    await this.consumer.subscribe({ topics: [this.name], fromBeginning: true });
    await this.consumer.run({
      eachMessage: async ({ partition, message }) => this.records.push(shown(partition, message)),
    });
  }

  async until(condition) {
    while (!condition(this)) await sleep(20);
  }

  async take(count) {
    await this.until(() => this.records.length >= count);
    return this.records.slice(0, count);
  }

  leave() {
    return this.consumer.disconnect();
  }
}

async function send(name, partition, ...values) {
  const producer = kafka.producer();
  await producer.connect();
  for (const value of values) await producer.send({ topic: name, messages: [{ partition, value }] });
  await producer.disconnect();
}

async function topics(admin) {
  const listed = async () => (await admin.listTopics()).filter((each) => each.startsWith(topic)).sort();
  const others = [`${topic}-1`, `${topic}-2`];
  const created = await admin.createTopics({ topics: [topic, ...others].map((each) => ({ topic: each, numPartitions: 2 })) });
  const again = await admin.createTopics({ topics: [{ topic, numPartitions: 2 }] });
  const before = await listed();
  await admin.deleteTopics({ topics: others });
  const after = await listed();
  await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] });
  const [{ partitions }] = (await admin.fetchTopicMetadata({ topics: [topic] })).topics;
  return { created, again, before, after, grown: partitions.length };
}

async function produce() {
  const producer = kafka.producer({ idempotent: true });
  await producer.connect();
  const messages = [
    { value: "plain", key: "key", headers: { name: "value" } },
    { value: "no key" },
    { value: null, key: "key" },
    { value: "", key: "key" },
    { value: "binary key", key: Buffer.from([255, 0, 254]) },
    { value: "twice", key: "key", headers: { name: ["1", "2"], binary: Buffer.from([255]) } },
  ];
  const offsets = [];
  for (const [number, each] of messages.entries()) {
    const timestamp = String(START + number);
    const [{ baseOffset }] = await producer.send({ topic, messages: [{ partition: 0, timestamp, ...each }] });
    offsets.push(Number(baseOffset));
  }
  await producer.disconnect();
  return offsets;
}

async function read() {
  const member = new Member("read");
  await member.start();
  const found = await member.take(6);
  await member.leave();
  return found;
}

async function group(admin) {
  const name = `${topic}-group`;
  await admin.createTopics({ topics: [{ topic: name, numPartitions: 2 }] });
  const producer = kafka.producer();
  await producer.connect();
  const sent = [0, 0]; // records keep consumers from waiting, so that they learn soon what happens in the group
  const sending = setInterval(() => {
    const messages = [0, 1].map((partition) => ({ partition, value: `${sent[partition]++}` }));
    producer.send({ topic: name, messages });
  }, 50);
  const [one, two] = [new Member("group", name), new Member("group", name)];
  const all = ({ partitions }) => partitions.length === 2;
  const half = ({ partitions }) => partitions.length === 1;
  await one.start();
  await one.until(all);
  await two.start();
  await Promise.all([one.until(half), two.until(half)]);
  const shared = numbers([...one.partitions, ...two.partitions]);
  await one.leave();
  await two.until(all);
  clearInterval(sending);
  // Some may come twice: a member learns of the other one before it has committed what it has read.
  const read = () => new Set([...one.records, ...two.records].map(([partition, offset]) => `${partition} ${offset}`));
  const missing = () => sent[0] + sent[1] - read().size;
  await two.until(() => missing() === 0);
  await two.leave();
  await producer.disconnect();
  return { shared, alone: numbers(two.partitions), missing: missing() };
}

async function commit(admin) {
  const member = new Member("commit");
  await member.start();
  await member.take(6);
  await member.leave();
  const [{ partitions }] = await admin.fetchOffsets({ groupId: `${topic}-commit`, topics: [topic] });
  return Number(partitions.find(({ partition }) => partition === 0).offset);
}

async function seek(admin) {
  const name = `${topic}-seek`;
  await admin.createTopics({ topics: [{ topic: name, numPartitions: 1 }] });
  await send(name, 0, "a", "b");
  await sleep(50);
  const between = Date.now();
  await sleep(50);
  await send(name, 0, "c", "d");
  const [{ offset: byTime }] = await admin.fetchTopicOffsetsByTimestamp(name, between);
  const [{ low, high }] = await admin.fetchTopicOffsets(name);
  const member = new Member("seek", name);
  await member.start();
  await member.take(4);
  member.consumer.seek({ topic: name, partition: 0, offset: "3" });
  const found = await member.take(5);
  await member.leave();
  return { byTime: Number(byTime), ends: [low, high].map(Number), sought: found[4][1] };
}

async function transactions(admin) {
  const [source, target] = [`${topic}-source`, `${topic}-target`];
  await admin.createTopics({ topics: [source, target].map((each) => ({ topic: each, numPartitions: 1 })) });
  await send(source, 0, "1", "2");
  const groupId = `${topic}-copy`;
  const partitions = [{ partition: 0, offset: "2" }];
  const state = async () => {
    const [committed] = await admin.fetchOffsets({ groupId, topics: [source] });
    const [end] = await admin.fetchTopicOffsets(target);
    return [Number(end.high), Number(committed.partitions[0].offset)];
  };
  const producer = kafka.producer({ transactionalId: topic, idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  const copy = async (...values) => {
    const transaction = await producer.transaction();
    await transaction.send({ topic: target, messages: values.map((value) => ({ value })) });
    await transaction.sendOffsets({ consumerGroupId: groupId, topics: [{ topic: source, partitions }] });
    return transaction;
  };
  await (await copy("never")).abort();
  const aborted = await state();
  const transaction = await copy("1", "2");
  const open = await state();
  await transaction.commit();
  await producer.disconnect();
  const member = new Member("committed", target); // read_committed is the default
  await member.start();
  const values = (await member.take(2)).map((each) => each[3]);
  await member.leave();
  return { aborted, open, committed: await state(), values };
}

async function flows() {
  const admin = kafka.admin();
  await admin.connect();
  const found = { topics: await topics(admin), sent: await produce() };
  const parts = { read, group, commit, seek, transactions };
  // Together: a consumer of kafkajs leaves when its last fetch is answered, which takes 5 s.
  const results = await Promise.all(Object.entries(parts).map(async ([name, part]) => [name, await part(admin)]));
  await admin.disconnect();
  return { ...found, ...Object.fromEntries(results) };
}

async function resume() {
  await send(topic, 0, "later");
  const member = new Member("commit");
  await member.start();
  const found = await member.take(1);
  await member.leave();
  return found.map((each) => each.slice(0, 4));
}

({ flows, resume })[part]().then((found) => console.log(JSON.stringify(found)));
