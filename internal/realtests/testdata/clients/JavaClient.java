import java.time.Duration;
import java.util.*;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.serialization.*;

/** Java's own client: what a program does with brokers. See README.md. Usage: java JavaClient.java BOOTSTRAP */
public class JavaClient {
    static final String TOPIC = "java", GROUP = "java-group";
    static final int PARTITIONS = 3, EACH = 200, KEYS = 20, PATIENCE = 60;
    static String bootstrap;
    static Admin admin;

    interface Step { void run() throws Exception; }

    static void check(boolean condition, Object what) {
        if (!condition) throw new AssertionError(what);
    }

    static <T> T get(KafkaFuture<T> future) throws Exception { return future.get(PATIENCE, TimeUnit.SECONDS); }

    /** Waits until condition gives null; what it gives else is what is wrong. */
    static void await(String what, Callable<Object> condition) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE);
        for (Object last = condition.call(); last != null; last = condition.call()) {
            check(System.nanoTime() < deadline, "timed out waiting until " + what + "; last: " + last);
            Thread.sleep(50);
        }
    }

    static void refused(Class<?> by, KafkaFuture<Void> future) throws Exception {
        try {
            get(future);
        } catch (ExecutionException e) {
            check(by.isInstance(e.getCause()), e.getCause());
            return;
        }
        check(false, "not refused by " + by);
    }

    static TopicDescription topic() throws Exception { return get(admin.describeTopics(List.of(TOPIC)).allTopicNames()).get(TOPIC); }

    static void create() throws Exception {
        NewTopic topic = new NewTopic(TOPIC, PARTITIONS, (short) 3).configs(Map.of("min.insync.replicas", "2"));
        get(admin.createTopics(List.of(topic)).all());
        refused(TopicExistsException.class, admin.createTopics(List.of(topic)).all());
        await("all partitions are led and in sync", () -> {
            List<TopicPartitionInfo> all = topic().partitions();
            return all.size() == PARTITIONS && all.stream().allMatch(p -> p.leader() != null && p.isr().size() == 3) ? null : all;
        });
    }

    static Properties properties(String... pairs) {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        for (int i = 0; i < pairs.length; i += 2) p.put(pairs[i], pairs[i + 1]);
        return p;
    }

    static void produce(String form, String... config) throws Exception {
        List<java.util.concurrent.Future<RecordMetadata>> sent = new ArrayList<>();
        try (Producer<String, String> producer = new KafkaProducer<>(properties(config), new StringSerializer(), new StringSerializer())) {
            for (int i = 0; i < EACH; i++) {
                ProducerRecord<String, String> r = new ProducerRecord<>(TOPIC, "" + i % KEYS, form + "/" + i);
                r.headers().add("form", form.getBytes());
                sent.add(producer.send(r));
            }
            producer.flush();
            for (var s : sent) s.get(PATIENCE, TimeUnit.SECONDS);
        }
    }

    static KafkaConsumer<String, String> consumer(String group) {
        return new KafkaConsumer<>(properties("group.id", group, "auto.offset.reset", "earliest", "enable.auto.commit", "false", "session.timeout.ms", "10000",
                "heartbeat.interval.ms", "300"), new StringDeserializer(), new StringDeserializer());
    }

    static void consume(int total) throws Exception {
        Map<Integer, Long> nextOffset = new HashMap<>();
        Map<String, Integer> nextValue = new HashMap<>();
        int[] n = {0};
        try (KafkaConsumer<String, String> c = consumer("nobody")) {
            List<TopicPartition> all = new ArrayList<>();
            for (int p = 0; p < PARTITIONS; p++) all.add(new TopicPartition(TOPIC, p));
            c.assign(all);
            c.seekToBeginning(all);
            await("all is read", () -> {
                for (ConsumerRecord<String, String> r : c.poll(Duration.ofMillis(200))) {
                    String[] v = r.value().split("/");
                    String key = v[0] + " " + r.key();
                    check(r.offset() == nextOffset.getOrDefault(r.partition(), 0L), r);
                    check(Integer.parseInt(v[1]) == nextValue.getOrDefault(key, Integer.parseInt(r.key())), "out of order: " + r);
                    check(new String(r.headers().lastHeader("form").value()).equals(v[0]), r);
                    nextOffset.put(r.partition(), r.offset() + 1);
                    nextValue.put(key, Integer.parseInt(v[1]) + KEYS);
                    n[0]++;
                }
                return n[0] == total ? null : n[0];
            });
            check(c.endOffsets(all).values().stream().mapToLong(x -> x).sum() == total, c.endOffsets(all));
            long hourAgo = System.currentTimeMillis() - 3600_000;
            check(c.offsetsForTimes(all.stream().collect(Collectors.toMap(p -> p, p -> hourAgo))).values().stream().allMatch(o -> o.offset() == 0), "by time");
        }
    }

    static int poll(KafkaConsumer<String, String> c) {
        int n = c.poll(Duration.ofMillis(100)).count();
        if (n > 0) {
            try {
                c.commitSync();
            } catch (CommitFailedException | org.apache.kafka.common.errors.RebalanceInProgressException e) {
                return 0; // whoever has the partition next reads it again
            }
        }
        return n;
    }

    static void group(int total) throws Exception {
        KafkaConsumer<String, String> a = consumer(GROUP), b = consumer(GROUP);
        int[] n = {0};
        try (a) {
            try (b) {
                a.subscribe(List.of(TOPIC));
                b.subscribe(List.of(TOPIC));
                await("two members share the partitions", () -> {
                    n[0] += poll(a) + poll(b);
                    int x = a.assignment().size(), y = b.assignment().size();
                    return x > 0 && y > 0 && x + y == PARTITIONS ? null : x + " and " + y;
                });
                ConsumerGroupDescription d = get(admin.describeConsumerGroups(List.of(GROUP)).all()).get(GROUP);
                check(d.state() == ConsumerGroupState.STABLE && d.members().size() == 2, d);
            }
            await("the other has them all", () -> {
                n[0] += poll(a);
                return a.assignment().size() == PARTITIONS ? null : a.assignment();
            });
            await("all is read", () -> {
                n[0] += poll(a);
                return n[0] >= total ? null : n[0];
            });
        }
    }

    static void committed(int total) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> offsets = get(admin.listConsumerGroupOffsets(GROUP).partitionsToOffsetAndMetadata());
        check(offsets.values().stream().mapToLong(OffsetAndMetadata::offset).sum() == total, offsets);
        try (KafkaConsumer<String, String> c = consumer(GROUP)) {
            c.subscribe(List.of(TOPIC));
            int[] extra = {0};
            await("it has its assignment", () -> {
                extra[0] += poll(c);
                return c.assignment().size() == PARTITIONS ? null : c.assignment();
            });
            check(c.committed(c.assignment()).equals(offsets), c.committed(c.assignment()));
            check(extra[0] + poll(c) == 0, "the group reads again what it has committed");
        }
    }

    static Config config(ConfigResource of) throws Exception { return get(admin.describeConfigs(List.of(of)).all()).get(of); }

    static void configs() throws Exception {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, TOPIC), broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
        ConfigEntry min = config(topic).get("min.insync.replicas");
        check(min.value().equals("2") && min.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, min);
        get(admin.incrementalAlterConfigs(Map.of(topic, List.of(new AlterConfigOp(new ConfigEntry("retention.ms", "3600000"), AlterConfigOp.OpType.SET),
                new AlterConfigOp(new ConfigEntry("min.insync.replicas", null), AlterConfigOp.OpType.DELETE),
                new AlterConfigOp(new ConfigEntry("cleanup.policy", "compact"), AlterConfigOp.OpType.APPEND)))).all());
        await("the change is told", () -> {
            Config c = config(topic);
            return c.get("retention.ms").value().equals("3600000") && c.get("min.insync.replicas").value().equals("1")
                    && c.get("cleanup.policy").value().equals("delete,compact") ? null : c;
        });
        ConfigEntry id = config(broker).get("broker.id");
        check(id.value().equals("1") && id.isReadOnly(), id);
    }

    static void partitions() throws Exception {
        get(admin.createPartitions(Map.of(TOPIC, NewPartitions.increaseTo(PARTITIONS + 1))).all());
        await("there is one more", () -> topic().partitions().size() == PARTITIONS + 1 ? null : topic());
        refused(InvalidPartitionsException.class, admin.createPartitions(Map.of(TOPIC, NewPartitions.increaseTo(PARTITIONS))).all());
    }

    static void groups() throws Exception {
        check(get(admin.listConsumerGroups().all()).stream().anyMatch(g -> g.groupId().equals(GROUP)), "the group is not listed");
        ConsumerGroupDescription d = get(admin.describeConsumerGroups(List.of(GROUP)).all()).get(GROUP);
        check(d.state() == ConsumerGroupState.EMPTY, d);
        get(admin.deleteConsumerGroups(List.of(GROUP)).all());
    }

    static void delete() throws Exception {
        get(admin.deleteTopics(List.of(TOPIC)).all());
        await("the topic is gone", () -> get(admin.listTopics().names()).contains(TOPIC) ? "listed" : null);
    }

    static void step(String name, Step step) throws Exception {
        long began = System.nanoTime();
        step.run();
        System.out.printf(Locale.ROOT, "ok %s %.1f s%n", name, (System.nanoTime() - began) / 1e9);
    }

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        try (Admin a = Admin.create(properties())) {
            admin = a;
            step("create", JavaClient::create);
            step("acks=0", () -> produce("acks=0", "acks", "0", "enable.idempotence", "false"));
            step("acks=1", () -> produce("acks=1", "acks", "1", "enable.idempotence", "false", "compression.type", "lz4"));
            step("acks=all", () -> produce("acks=all", "acks", "all", "enable.idempotence", "false", "compression.type", "zstd"));
            step("idempotent", () -> produce("idempotent", "acks", "all", "enable.idempotence", "true", "compression.type", "snappy"));
            step("consume", () -> consume(4 * EACH));
            step("group", () -> group(4 * EACH));
            step("committed", () -> committed(4 * EACH));
            step("configs", JavaClient::configs);
            step("partitions", JavaClient::partitions);
            step("groups", JavaClient::groups);
            step("delete", JavaClient::delete);
        }
    }
}
