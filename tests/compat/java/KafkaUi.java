import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.SecurityDisabledException;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * What kafbat's kafka-ui asks a cluster, by Kafka's own client: first to connect, then at every refresh, where one answer
 * that fails shows the cluster as offline, then what its buttons do. One line a step: its name, and what it found.
 * "forgiven" are the errors that kafka-ui takes for "this cluster does not have that".
 */
public class KafkaUi {
    private static final String TOPIC = "kafka-ui";
    private static final String GROUP = "kafka-ui-group";
    private static int failed = 0;

    public static void main(String[] arguments) throws Exception {
        String servers = arguments[0];
        Map<String, Object> client = Map.of("bootstrap.servers", servers, "request.timeout.ms", 15_000);
        try (Admin admin = Admin.create(new HashMap<>(client))) {
            connect(admin);
            fill(admin, client);
            refresh(admin);
            act(admin, client);
        }
        System.exit(failed == 0 ? 0 : 1);
    }

    private static void connect(Admin admin) {
        step("connect: cluster", () -> {
            DescribeClusterResult found = admin.describeCluster(
                new DescribeClusterOptions().includeAuthorizedOperations(true));
            return got(found.nodes()).size() + " brokers, controller " + got(found.controller()).id()
                + ", cluster " + (got(found.clusterId()) != null);
        });
        step("connect: version", () -> {
            Node controller = got(admin.describeCluster().controller());
            ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, controller.idString());
            Config config = got(admin.describeConfigs(List.of(broker),
                new DescribeConfigsOptions().includeDocumentation(true)).all()).get(broker);
            ConfigEntry version = config.get("inter.broker.protocol.version");
            if (version == null) {
                throw new IllegalStateException("no inter.broker.protocol.version: shown as Unknown");
            }
            return version.value();
        });
        step("connect: acls", SecurityDisabledException.class, () ->
            got(admin.describeAcls(AclBindingFilter.ANY).values()).size() + " rules");
        step("connect: features", () -> got(admin.describeFeatures().featureMetadata()).supportedFeatures().size() + "");
    }

    private static void fill(Admin admin, Map<String, Object> client) throws Exception {
        step("create topic", () -> {
            int factor = Math.min(3, got(admin.describeCluster().nodes()).size());
            NewTopic topic = new NewTopic(TOPIC, 4, (short) factor).configs(Map.of("retention.ms", "3600000"));
            got(admin.createTopics(List.of(topic)).all());
            return factor + " replicas";
        });
        step("produce and commit", () -> {
            Map<String, Object> producing = new HashMap<>(client);
            producing.put("key.serializer", StringSerializer.class);
            producing.put("value.serializer", StringSerializer.class);
            try (KafkaProducer<String, String> producer = new KafkaProducer<>(producing)) {
                for (int number = 0; number < 400; number++) {
                    producer.send(new ProducerRecord<>(TOPIC, number % 4, "key " + number, "value " + number));
                }
            }
            Map<String, Object> reading = new HashMap<>(client);
            reading.put("key.deserializer", StringDeserializer.class);
            reading.put("value.deserializer", StringDeserializer.class);
            reading.put("group.id", GROUP);
            reading.put("auto.offset.reset", "earliest");
            int read = 0;
            try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(reading)) {
                consumer.subscribe(List.of(TOPIC));
                long end = System.currentTimeMillis() + 60_000;
                while (read < 400 && System.currentTimeMillis() < end) {
                    read += consumer.poll(java.time.Duration.ofMillis(200)).count();
                }
                consumer.commitSync();
            }
            if (read != 400) {
                throw new IllegalStateException("read " + read + " of 400");
            }
            return "400 records";
        });
    }

    private static void refresh(Admin admin) throws Exception {
        Collection<Node> nodes = got(admin.describeCluster().nodes());
        step("refresh: broker settings", () -> {
            List<ConfigResource> all = nodes.stream()
                .map(node -> new ConfigResource(ConfigResource.Type.BROKER, node.idString())).collect(Collectors.toList());
            Map<ConfigResource, Config> found = got(admin.describeConfigs(all).all());
            return found.values().stream().mapToInt(each -> each.entries().size()).sum() + " values";
        });
        step("refresh: log directories", () -> {
            List<Integer> ids = nodes.stream().map(Node::id).collect(Collectors.toList());
            return got(admin.describeLogDirs(ids).allDescriptions()).size() + " brokers";
        });
        Set<String> names = got(admin.listTopics(new ListTopicsOptions().listInternal(true)).names());
        Map<String, TopicDescription> topics = new HashMap<>();
        step("refresh: topics", () -> {
            topics.putAll(got(admin.describeTopics(names,
                new DescribeTopicsOptions().includeAuthorizedOperations(true)).allTopicNames()));
            if (!topics.get("__consumer_offsets").isInternal()) {
                throw new IllegalStateException("__consumer_offsets is not internal");
            }
            return topics.containsKey(TOPIC) ? "its own among them" : fail("its own is missing");
        });
        step("refresh: topic settings", () -> {
            List<ConfigResource> all = names.stream()
                .map(name -> new ConfigResource(ConfigResource.Type.TOPIC, name)).collect(Collectors.toList());
            Map<ConfigResource, Config> found = got(admin.describeConfigs(all,
                new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true)).all());
            ConfigEntry set = found.get(new ConfigResource(ConfigResource.Type.TOPIC, TOPIC)).get("retention.ms");
            return set.value().equals("3600000") && !set.isDefault() ? "as set" : fail(set.toString());
        });
        step("refresh: offsets", () -> {
            Map<TopicPartition, OffsetSpec> first = new HashMap<>();
            Map<TopicPartition, OffsetSpec> last = new HashMap<>();
            for (TopicDescription topic : topics.values()) {
                topic.partitions().forEach(each -> {
                    first.put(new TopicPartition(topic.name(), each.partition()), OffsetSpec.earliest());
                    last.put(new TopicPartition(topic.name(), each.partition()), OffsetSpec.latest());
                });
            }
            got(admin.listOffsets(first).all());
            long end = got(admin.listOffsets(last).all()).entrySet().stream()
                .filter(each -> each.getKey().topic().equals(TOPIC)).mapToLong(each -> each.getValue().offset()).sum();
            return end == 400 ? "400" : fail(end + " in place of 400");
        });
        step("refresh: groups", () -> {
            Collection<ConsumerGroupListing> listed = got(admin.listConsumerGroups().all());
            List<String> ids = listed.stream().map(ConsumerGroupListing::groupId).collect(Collectors.toList());
            Map<String, ConsumerGroupDescription> described = got(admin.describeConsumerGroups(ids,
                new DescribeConsumerGroupsOptions().includeAuthorizedOperations(true)).all());
            Map<String, ListConsumerGroupOffsetsSpec> asked = new HashMap<>();
            ids.forEach(id -> asked.put(id, new ListConsumerGroupOffsetsSpec()));
            long committed = got(admin.listConsumerGroupOffsets(asked).all()).get(GROUP).values().stream()
                .mapToLong(OffsetAndMetadata::offset).sum();
            return committed == 400 ? described.get(GROUP).state() + ", 400 committed" : fail(committed + " committed");
        });
        step("refresh: quorum", UnsupportedVersionException.class, () ->
            got(admin.describeMetadataQuorum().quorumInfo()).leaderId() + "");
        step("refresh: producers", () -> {
            Set<TopicPartition> one = Set.of(new TopicPartition(TOPIC, 0));
            return got(admin.describeProducers(one).all()).values().iterator().next().activeProducers().size() + "";
        });
        step("refresh: reassignments", () -> got(admin.listPartitionReassignments().reassignments()).size() + " under way");
    }

    private static void act(Admin admin, Map<String, Object> client) throws Exception {
        TopicPartition zero = new TopicPartition(TOPIC, 0);
        step("button: settings of a topic", () -> {
            ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, TOPIC);
            AlterConfigOp change = new AlterConfigOp(new ConfigEntry("retention.ms", "7200000"), AlterConfigOp.OpType.SET);
            got(admin.incrementalAlterConfigs(Map.of(topic, List.of(change))).all());
            return "set";
        });
        step("button: settings of a broker", () -> {
            String id = got(admin.describeCluster().controller()).idString();
            ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, id);
            for (AlterConfigOp.OpType kind : List.of(AlterConfigOp.OpType.SET, AlterConfigOp.OpType.DELETE)) {
                AlterConfigOp change = new AlterConfigOp(new ConfigEntry("log.retention.ms", "7200000"), kind);
                got(admin.incrementalAlterConfigs(Map.of(broker, List.of(change))).all());
            }
            return "set and unset";
        });
        step("button: more partitions", () -> {
            got(admin.createPartitions(Map.of(TOPIC, NewPartitions.increaseTo(6))).all());
            return "6";
        });
        step("button: replication factor", () -> {
            Map<TopicPartition, Optional<NewPartitionReassignment>> plan = new HashMap<>();
            int one = got(admin.describeCluster().nodes()).iterator().next().id();
            plan.put(new TopicPartition(TOPIC, 5), Optional.of(new NewPartitionReassignment(List.of(one))));
            got(admin.alterPartitionReassignments(plan).all());
            return "one replica";
        });
        step("button: clear messages", () -> {
            Map<TopicPartition, RecordsToDelete> all = Map.of(zero, RecordsToDelete.beforeOffset(-1));
            return got(admin.deleteRecords(all).lowWatermarks().get(zero)).lowWatermark() == 100 ? "100" : fail("not 100");
        });
        step("button: reset offsets", () -> {
            got(admin.alterConsumerGroupOffsets(GROUP, Map.of(zero, new OffsetAndMetadata(7))).all());
            long now = got(admin.listConsumerGroupOffsets(GROUP).partitionsToOffsetAndMetadata()).get(zero).offset();
            return now == 7 ? "7" : fail(now + " in place of 7");
        });
        step("button: delete offsets of a topic", () -> {
            got(admin.deleteConsumerGroupOffsets(GROUP, Set.of(zero)).all());
            return "gone";
        });
        step("button: delete a group", () -> {
            got(admin.deleteConsumerGroups(List.of(GROUP)).all());
            boolean isGone = got(admin.listConsumerGroups().all()).stream().noneMatch(each -> each.groupId().equals(GROUP));
            return isGone ? "gone" : fail("still there");
        });
        step("button: quotas", UnsupportedVersionException.class, () ->
            got(admin.describeClientQuotas(org.apache.kafka.common.quota.ClientQuotaFilter.all()).entities()).size() + "");
        step("button: delete a topic", () -> {
            got(admin.deleteTopics(List.of(TOPIC)).all());
            return "gone";
        });
    }

    private static String fail(String why) {
        throw new IllegalStateException(why);
    }

    private static <T> T got(KafkaFuture<T> future) throws Exception {
        return future.get(60, TimeUnit.SECONDS);
    }

    private static void step(String name, Callable<String> work) {
        step(name, null, work);
    }

    private static void step(String name, Class<? extends Throwable> forgiven, Callable<String> work) {
        Throwable error;
        try {
            System.out.println("ok " + name + ": " + work.call());
            return;
        } catch (ExecutionException wrapped) {
            error = wrapped.getCause();
        } catch (Exception other) {
            error = other;
        }
        boolean is = forgiven != null && forgiven.isInstance(error);
        failed += is ? 0 : 1;
        System.out.println((is ? "forgiven " : "FAILED ") + name + ": " + error);
    }
}
