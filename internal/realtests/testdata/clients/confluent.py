"""confluent-kafka (librdkafka): what a program does with brokers. See README.md.

usage: confluent.py BOOTSTRAP
"""
import sys
import time

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource, NewPartitions, NewTopic,
                                   ResourceType)

TOPIC, GROUP, PARTITIONS, EACH, KEYS, PATIENCE = "confluent", "confluent-group", 3, 200, 20, 60
bootstrap = {"bootstrap.servers": sys.argv[1]}
admin = AdminClient(bootstrap)


def ok(step, detail=""):
    print("ok", step, detail, flush=True)


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def await_(what, condition):
    deadline = time.monotonic() + PATIENCE
    while True:
        last = condition()
        if last is True:
            return
        check(time.monotonic() < deadline, f"timed out waiting until {what}; last: {last}")
        time.sleep(0.1)


def one(futures):
    """The answer for the only thing asked for."""
    (future,) = futures.values()
    return future.result(PATIENCE)


def create():
    one(admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "2"})]))
    try:
        one(admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)]))
        check(False, "the topic was created twice")
    except KafkaException as e:
        check(e.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS, e)

    def complete():
        t = admin.list_topics(TOPIC, timeout=10).topics[TOPIC]
        return len(t.partitions) == PARTITIONS and all(p.leader > 0 and len(p.isrs) == 3 for p in t.partitions.values()) or t.partitions
    await_("all partitions are led and in sync", complete)


def produce(form, config):
    failed = []
    producer = Producer({**bootstrap, "linger.ms": 5, **config})
    for i in range(EACH):
        producer.produce(TOPIC, key=str(i % KEYS), value=f"{form}/{i}", headers={"form": form},
                         on_delivery=lambda err, _: failed.append(err) if err else None)
    check(producer.flush(PATIENCE) == 0, "records were left over")
    check(not failed, failed[:1])


def consume(forms):
    consumer = Consumer({**bootstrap, "group.id": "nobody", "enable.auto.commit": False, "check.crcs": True})
    consumer.assign([TopicPartition(TOPIC, p, 0) for p in range(PARTITIONS)])
    next_offset, next_value, n = [0] * PARTITIONS, {}, 0
    deadline = time.monotonic() + PATIENCE
    while n < forms * EACH:
        check(time.monotonic() < deadline, f"read {n} records of {forms * EACH}")
        m = consumer.poll(1)
        if m is None:
            continue
        check(m.error() is None, m.error())
        check(m.offset() == next_offset[m.partition()], f"partition {m.partition()}: offset {m.offset()}, want {next_offset[m.partition()]}")
        next_offset[m.partition()] += 1
        form, i = m.value().decode().rsplit("/", 1)
        key = (form, m.key())
        check(int(i) == next_value.get(key, int(m.key())), f"{form}, key {m.key()}: value {i} is out of order")
        next_value[key] = int(i) + KEYS
        check(m.headers() == [("form", form.encode())], m.headers())
        n += 1
    low, high = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=10)
    check((low, high) == (0, next_offset[0]), f"watermarks {low}, {high}, want 0, {next_offset[0]}")
    consumer.close()


def member(**config):
    c = Consumer({**bootstrap, "group.id": GROUP, "auto.offset.reset": "earliest", "enable.auto.commit": False, "session.timeout.ms": 10000,
                  "heartbeat.interval.ms": 500, **config})
    c.subscribe([TOPIC])
    return c


def group(total):
    members, read = [member(), member()], [0]

    def poll():
        for m in members:
            got = m.poll(0.05)
            if got is not None and got.error() is None:
                read[0] += 1
                m.commit(got, asynchronous=True)
        return [len(m.assignment()) for m in members]

    def shared():
        sizes = poll()
        return sum(sizes) == PARTITIONS and min(sizes) > 0 or sizes
    await_("two members share the partitions", shared)
    d = one(admin.describe_consumer_groups([GROUP]))
    check(str(d.state) == "ConsumerGroupState.STABLE" and len(d.members) == 2, d.state)
    gone = members.pop()
    gone.close()
    await_("the other has them all", lambda: poll() == [PARTITIONS] or poll())
    await_("all is read", lambda: ([poll() for _ in range(50)], read[0] >= total)[1] or read[0])
    members[0].commit(offsets=[p for p in members[0].position(members[0].assignment()) if p.offset >= 0], asynchronous=False)
    members[0].close()


def committed(total):
    reader = member()
    offsets = reader.committed([TopicPartition(TOPIC, p) for p in range(PARTITIONS)], timeout=PATIENCE)
    check(sum(max(0, o.offset) for o in offsets) == total, f"committed {[o.offset for o in offsets]}, want {total} together")
    await_("it has its assignment", lambda: (reader.poll(0.2), len(reader.assignment()))[1] == PARTITIONS)
    check(reader.poll(1) is None, "the group reads again what it has committed")
    reader.close()
    listed = one(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)]))
    check(sum(max(0, o.offset) for o in listed.topic_partitions) == total, "the admin client sees other offsets")


def configs():
    resource = ConfigResource(ResourceType.TOPIC, TOPIC)
    c = one(admin.describe_configs([resource]))
    check(c["min.insync.replicas"].value == "2" and c["min.insync.replicas"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value, "min.insync.replicas")
    one(admin.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[
        ConfigEntry("retention.ms", "3600000", incremental_operation=AlterConfigOpType.SET),
        ConfigEntry("min.insync.replicas", None, incremental_operation=AlterConfigOpType.DELETE)])]))

    def changed():
        c = one(admin.describe_configs([resource]))
        return (c["retention.ms"].value, c["min.insync.replicas"].value) == ("3600000", "1") or c["retention.ms"]
    await_("the change is told", changed)
    b = one(admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]))
    check(b["broker.id"].value == "1" and b["broker.id"].is_read_only, "broker.id")


def partitions():
    one(admin.create_partitions([NewPartitions(TOPIC, PARTITIONS + 1)]))
    await_("there is one more", lambda: len(admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions) == PARTITIONS + 1)
    try:
        one(admin.create_partitions([NewPartitions(TOPIC, PARTITIONS)]))
        check(False, "partitions were taken away")
    except KafkaException as e:
        check(e.args[0].code() == KafkaError.INVALID_PARTITIONS, e)


def groups():
    valid = admin.list_consumer_groups().result(PATIENCE).valid
    check(any(g.group_id == GROUP for g in valid), [g.group_id for g in valid])
    d = one(admin.describe_consumer_groups([GROUP]))
    check(str(d.state) == "ConsumerGroupState.EMPTY", d.state)
    await_("the group can be deleted", lambda: one(admin.delete_consumer_groups([GROUP])) is None)


def delete():
    one(admin.delete_topics([TOPIC]))
    await_("the topic is gone", lambda: TOPIC not in admin.list_topics(timeout=10).topics)


FORMS = {"acks=0": {"acks": "0"}, "acks=1": {"acks": "1", "compression.type": "lz4"}, "acks=all": {"acks": "all", "compression.type": "zstd"},
         "idempotent": {"enable.idempotence": True, "compression.type": "gzip"}}
STEPS = [("create", create)] + [(f, lambda f=f, c=c: produce(f, c)) for f, c in FORMS.items()] + [
    ("consume", lambda: consume(len(FORMS))), ("group", lambda: group(len(FORMS) * EACH)), ("committed", lambda: committed(len(FORMS) * EACH)),
    ("configs", configs), ("partitions", partitions), ("groups", groups), ("delete", delete)]
for name, step in STEPS:
    began = time.monotonic()
    step()
    ok(name, f"{time.monotonic() - began:.1f} s")
