package power.syncs;

import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * Called from the JDK's classes and the broker's. Each call is a line in the log, its fields separated by tabs, with
 * paths relative to the folder; {@code harness.runtimes.power} reads it:
 *
 * <pre>
 * sync SIZE PATH       all bytes up to SIZE are on disk
 * truncate SIZE PATH
 * rename FROM TO       a file or a folder
 * remove PATH
 * </pre>
 *
 * A line is written before what it is about is done, so that a broker that is killed in between counts as one that has
 * done it: a power failure in the middle of a sync may come late enough, too.
 */
public final class Notes {
    private static final String DELETED = " (deleted)";
    private static final int FAILED = 3;

    private static FileOutputStream log;
    private static String folder;
    /** The folder without symbolic links, as the kernel names it. */
    private static String realFolder;
    private static Field number;

    private Notes() {
    }

    static void open(String logPath, String folderPath) throws IOException, NoSuchFieldException {
        folder = folderPath + "/";
        realFolder = Path.of(folderPath).toRealPath() + "/";
        number = FileDescriptor.class.getDeclaredField("fd");
        number.setAccessible(true);
        log = new FileOutputStream(logPath, true);
    }

    public static void sync(FileDescriptor file) {
        note("sync", file, Long.MAX_VALUE);
    }

    public static void truncate(FileDescriptor file, long size) {
        note("truncate", file, size);
    }

    public static void rename(Object from, Object to) {
        String before = relative(from.toString()), after = relative(to.toString());
        if (before != null && after != null)
            write("rename\t" + before + "\t" + after);
    }

    public static void remove(Object path) {
        String name = relative(path.toString());
        if (name != null)
            write("remove\t" + name);
    }

    private static void note(String what, FileDescriptor file, long limit) {
        try {
            Path link = Path.of("/proc/self/fd/" + number.getInt(file));
            String name = relative(Files.readSymbolicLink(link).toString());
            if (name != null && !name.endsWith(DELETED) && !Files.isDirectory(link))
                // The size before the sync: whatever is appended meanwhile may not be part of it.
                write(what + "\t" + Math.min(Files.size(link), limit) + "\t" + name);
        } catch (IOException | IllegalAccessException error) {
            fail(error);
        }
    }

    private static String relative(String path) {
        if (path.startsWith(folder))
            return path.substring(folder.length());
        return path.startsWith(realFolder) ? path.substring(realFolder.length()) : null;
    }

    private static synchronized void write(String line) {
        try {
            log.write((line + "\n").getBytes(StandardCharsets.UTF_8));
        } catch (IOException error) {
            fail(error);
        }
    }

    /** Ends the broker: with notes missing, more would be cut off than was lost. */
    private static void fail(Exception error) {
        System.err.println("sync-notes: " + error);
        Runtime.getRuntime().halt(FAILED);
    }
}
