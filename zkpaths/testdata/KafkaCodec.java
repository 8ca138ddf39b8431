// Reads lines "codec TAB base64" and answers each with what Kafka's own code
// makes of those bytes: "ok TAB base64 of what Kafka writes for the value it
// read", or "no TAB reason". Run as: java -cp 'JARS/3.9.1/*' KafkaCodec.java
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.Base64;
import kafka.zk.*;
import org.apache.zookeeper.data.Stat;

public class KafkaCodec {
    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split("\t", -1);
            String answer;
            try {
                byte[] back = through(parts[0], Base64.getDecoder().decode(parts[1]));
                answer = back == null ? "no\tnothing read" : "ok\t" + Base64.getEncoder().encodeToString(back);
            } catch (Throwable e) {
                answer = "no\t" + String.valueOf(e).replaceAll("[\\s]+", " ");
            }
            out.println(answer);
            out.flush();
        }
    }

    static byte[] through(String codec, byte[] data) throws Exception {
        // Most codecs take what is no JSON for an empty value; here it counts as unread.
        if (!codec.equals("controller_epoch") && kafka.utils.Json.parseBytes(data).isEmpty()) return null;
        switch (codec) {
            case "controller": {
                ZKControllerRegistration r = ControllerZNode.decodeController(data, 0);
                int epoch = r.kraftEpoch().isEmpty() ? -1 : (Integer) r.kraftEpoch().get();
                return ControllerZNode.encode(r.broker(), 0, epoch);
            }
            case "controller_epoch":
                return ControllerEpochZNode.encode(ControllerEpochZNode.decode(data));
            case "broker":
                return BrokerIdZNode.encode(BrokerIdZNode.decode(1, data));
            case "topic": {
                TopicZNode.TopicIdReplicaAssignment t = TopicZNode.decode("orders", data);
                return TopicZNode.encode(t.topicId(), t.assignment());
            }
            case "state": {
                scala.Option<kafka.controller.LeaderIsrAndControllerEpoch> l = TopicPartitionStateZNode.decode(data, new Stat());
                return l.isEmpty() ? null : TopicPartitionStateZNode.encode(l.get());
            }
            case "reassign_strict": {
                var read = ReassignPartitionsZNode.decode(data);
                if (read.isLeft()) throw read.left().toOption().get();
                return ReassignPartitionsZNode.encode(read.toOption().get());
            }
            case "preferred":
                return PreferredReplicaElectionZNode.encode(PreferredReplicaElectionZNode.decode(data));
            case "isr":
                return IsrChangeNotificationSequenceZNode.encode(IsrChangeNotificationSequenceZNode.decode(data));
            case "log_dir": {
                scala.Option<Object> broker = LogDirEventNotificationSequenceZNode.decode(data);
                return broker.isEmpty() ? null : LogDirEventNotificationSequenceZNode.encode((Integer) broker.get());
            }
            case "config":
                return ConfigEntityZNode.encode(ConfigEntityZNode.decode(data));
            case "cluster_id":
                return ClusterIdZNode.toJson(ClusterIdZNode.fromJson(data));
            case "producer_block":
                return ProducerIdBlockZNode.generateProducerIdBlockJson(ProducerIdBlockZNode.parseProducerIdBlockData(data));
            case "features":
                return FeatureZNode.encode(FeatureZNode.decode(data));
            case "migration":
                return MigrationZNode.encode(MigrationZNode.decode(data, 0, 0));
            default:
                throw new IllegalArgumentException("no codec " + codec);
        }
    }
}
