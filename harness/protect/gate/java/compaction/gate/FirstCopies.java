package compaction.gate;

import compaction.gate.ImageReader.Copy;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.StandardOpenOption;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * From which leader the replicas on this broker are copied whose copies began from an empty log, and that have not been
 * in the ISR since. It is in a file in the partition's folder, too, so that a restart does not forget it.
 */
final class FirstCopies {
    /** Holds the topic id and partition, and the leader. A broker's log ignores it, and it vanishes with the folder. */
    static final String FILE = "compaction-gate.first-copy";

    /** Instead of a leader where the file cannot be understood: differs from every leader, so that the copy begins anew. */
    private static final int UNREADABLE = -2;

    private final Map<Object, Begun> copies = new ConcurrentHashMap<>();

    /**
     * Returns the leader from which all of the replica's log came; null where that is not known. A replica that is being
     * added goes by what this broker has seen since it started: while it was down, the replica may have been unassigned,
     * and its folder be an old one.
     */
    Integer leaderOf(Object partition, Copy copy, File folder) throws IOException {
        Begun begun = copies.get(partition);
        if (begun != null)
            return begun.copy.id.equals(copy.id) ? Integer.valueOf(begun.copy.leader) : null;
        return copy.isAdding ? null : read(copy.id, new File(folder, FILE));
    }

    void begin(Object partition, Copy copy, File folder) throws IOException {
        copies.put(partition, new Begun(copy, folder));
        byte[] content = (copy.id + " " + copy.leader + "\n").getBytes(StandardCharsets.UTF_8);
        try (FileChannel file = FileChannel.open(new File(folder, FILE).toPath(), StandardOpenOption.CREATE,
                StandardOpenOption.WRITE, StandardOpenOption.TRUNCATE_EXISTING)) {
            file.write(ByteBuffer.wrap(content));
            file.force(true);
        }
    }

    /** The replica in this folder is counted by others: its first copy, if there was one, is over. */
    void complete(Object partition, File folder) throws IOException {
        copies.remove(partition);
        Files.deleteIfExists(new File(folder, FILE).toPath());
    }

    /**
     * Forgets every copy that is over, as its replica is in the ISR by this image, or is not on this broker any more. A
     * replica that falls out of the ISR later goes on from its log, as in any outage.
     */
    void forgetComplete(Object image, int broker) throws IOException {
        for (Map.Entry<Object, Begun> one : copies.entrySet()) {
            Copy now = ImageReader.copy(image, one.getKey(), broker);
            if (now == null || now.isCounted || !now.id.equals(one.getValue().copy.id))
                complete(one.getKey(), one.getValue().folder);
        }
    }

    private static Integer read(String id, File file) throws IOException {
        if (!file.exists())
            return null;
        String[] words = new String(Files.readAllBytes(file.toPath()), StandardCharsets.UTF_8).trim().split(" ");
        if (words.length != 2)
            return UNREADABLE;
        if (!words[0].equals(id))
            return null;
        try {
            return Integer.valueOf(words[1]);
        } catch (NumberFormatException torn) {
            return UNREADABLE;
        }
    }

    private static final class Begun {
        final Copy copy;
        final File folder;

        Begun(Copy copy, File folder) {
            this.copy = copy;
            this.folder = folder;
        }
    }
}
