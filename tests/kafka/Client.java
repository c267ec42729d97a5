// Kafka's own producer and admin client, for tests: commands on standard input, `ok` or an error for each.
//
//   java -cp 'JARS/*' Client.java HOST:PORT
//
//   ready                            waits until the broker answers
//   create TOPIC PARTITIONS          makes a topic; `grow` gives it more partitions, `drop` deletes it
//   produce TOPIC COMPRESSION        sends the lines that follow, up to a line `.`: PARTITION\tKEY\tVALUE; \N for none
//   abort TOPIC COMPRESSION          the same in a transaction, which is then aborted
//   delete TOPIC PARTITION OFFSET    drops what is before an offset, as a retention does
//   scram USER PASSWORD              a user of SCRAM, in both strengths

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public final class Client {
    private static final BufferedReader IN =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));

    private final String servers;
    private final Admin admin;

    private Client(String servers) {
        this.servers = servers;
        this.admin = Admin.create(Map.of("bootstrap.servers", servers));
    }

    public static void main(String[] args) throws Exception {
        Client client = new Client(args[0]);
        for (String line = IN.readLine(); line != null; line = IN.readLine()) {
            try {
                client.runWhenUnfenced(line.split(" "));
                System.out.println("ok");
            } catch (Exception e) {
                System.out.println(e);
            }
        }
        // Without waiting for the threads of clients whose broker is gone.
        Runtime.getRuntime().halt(0);
    }

    /** A busy machine may let the broker's session end: then it has no place for a topic, for a moment. */
    private void runWhenUnfenced(String[] words) throws Exception {
        long until = System.nanoTime() + 60_000_000_000L;
        while (true) {
            try {
                run(words);
                return;
            } catch (ExecutionException e) {
                boolean isFenced = e.getCause() instanceof InvalidReplicationFactorException;
                if (!isFenced || System.nanoTime() > until) {
                    throw e;
                }
            }
        }
    }

    private void run(String[] words) throws Exception {
        switch (words[0]) {
            case "ready" -> admin.describeCluster().clusterId().get();
            case "create" -> admin.createTopics(List.of(
                    new NewTopic(words[1], Optional.of(Integer.parseInt(words[2])), Optional.empty()))).all().get();
            case "grow" -> admin.createPartitions(Map.of(
                    words[1], NewPartitions.increaseTo(Integer.parseInt(words[2])))).all().get();
            case "drop" -> admin.deleteTopics(List.of(words[1])).all().get();
            case "produce" -> produce(words[1], words[2], false);
            case "abort" -> produce(words[1], words[2], true);
            case "delete" -> admin.deleteRecords(Map.of(
                    new TopicPartition(words[1], Integer.parseInt(words[2])),
                    RecordsToDelete.beforeOffset(Long.parseLong(words[3])))).all().get();
            case "scram" -> {
                for (ScramMechanism mechanism : List.of(ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)) {
                    admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion(
                            words[1], new ScramCredentialInfo(mechanism, 4096), words[2]))).all().get();
                }
            }
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    private void produce(String topic, String compression, boolean aborted) throws Exception {
        List<String> lines = new ArrayList<>();
        for (String line = IN.readLine(); !line.equals("."); line = IN.readLine()) {
            lines.add(line);
        }
        // One request in flight: with more, a topic that was made a moment ago may take a partition's batches out of
        // order, and the producer then repeats them in vain until the deadline (Kafka 4.4).
        Map<String, Object> settings = new java.util.HashMap<>(Map.of("bootstrap.servers", servers, "acks", "all",
                "compression.type", compression, "linger.ms", 5, "delivery.timeout.ms", 60000,
                "max.in.flight.requests.per.connection", 1));
        if (aborted) {
            settings.put("transactional.id", "of-a-test");
        }
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, bytes, bytes)) {
            if (aborted) {
                producer.initTransactions();
                producer.beginTransaction();
            }
            List<Future<?>> sent = new ArrayList<>();
            for (String line : lines) {
                String[] parts = line.split("\t", -1);
                sent.add(producer.send(new ProducerRecord<>(
                        topic, Integer.parseInt(parts[0]), bytes(parts[1]), bytes(parts[2]))));
            }
            producer.flush();
            for (Future<?> each : sent) {
                each.get();
            }
            if (aborted) {
                producer.abortTransaction();
            }
        }
    }

    private static byte[] bytes(String text) {
        return text.equals("\\N") ? null : text.getBytes(StandardCharsets.UTF_8);
    }
}
