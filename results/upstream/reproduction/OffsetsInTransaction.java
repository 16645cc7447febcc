import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Commits an offset of a group in a transaction, which stays open until a line comes in. No script of Kafka does this.
 *
 * <pre>
 * java -cp "$KAFKA_HOME/libs/*" OffsetsInTransaction.java BOOTSTRAP GROUP TOPIC OFFSET
 * </pre>
 *
 * Prints "sent" once the offset is in __consumer_offsets, and "committed" once the marker is.
 */
public final class OffsetsInTransaction {
    private OffsetsInTransaction() {
    }

    public static void main(String[] arguments) throws Exception {
        String group = arguments[1];
        TopicPartition partition = new TopicPartition(arguments[2], 0);
        OffsetAndMetadata offset = new OffsetAndMetadata(Long.parseLong(arguments[3]));

        Properties config = new Properties();
        config.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        config.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, group + ".transaction");
        config.put(ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class);
        config.put(ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class);

        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config);
             BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            producer.initTransactions();
            producer.beginTransaction();
            // Returns once the group's coordinator has appended the offset (TxnOffsetCommit).
            producer.sendOffsetsToTransaction(Map.of(partition, offset), new ConsumerGroupMetadata(group));
            System.out.println("sent");
            lines.readLine();
            producer.commitTransaction();
            System.out.println("committed");
        }
    }
}
