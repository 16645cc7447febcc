import java.io.File;
import java.io.FileOutputStream;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;

/** Does to files of the folder given what a broker does. */
public final class Writes {
    public static void main(String[] arguments) throws Exception {
        Path folder = Path.of(arguments[0]);
        FileChannel log = open(folder.resolve("t-0/0.log"));
        log.write(ByteBuffer.allocate(100));
        log.force(true);
        log.write(ByteBuffer.allocate(30));

        FileChannel truncated = open(folder.resolve("t-0/truncated.log"));
        truncated.write(ByteBuffer.allocate(100));
        truncated.force(false);
        truncated.truncate(40);
        truncated.write(ByteBuffer.allocate(50));

        open(folder.resolve("t-0/never.log")).write(ByteBuffer.allocate(10));

        try (FileOutputStream draft = new FileOutputStream(folder.resolve("checkpoint.tmp").toFile())) {
            draft.write(new byte[20]);
            draft.flush();
            draft.getFD().sync();
        }
        Files.move(folder.resolve("checkpoint.tmp"), folder.resolve("checkpoint"), StandardCopyOption.ATOMIC_MOVE);

        FileChannel cleaned = open(folder.resolve("t-0/5.log.cleaned"));
        cleaned.write(ByteBuffer.allocate(60));
        cleaned.force(true);
        new File(folder + "/t-0/5.log.cleaned").renameTo(new File(folder + "/t-0/5.log.swap"));
        // Through the channel of the renamed file.
        cleaned.write(ByteBuffer.allocate(5));
        cleaned.force(true);

        for (String name : new String[] {"again.log", "again-too.log"}) {
            FileChannel first = open(folder.resolve("t-0/" + name));
            first.write(ByteBuffer.allocate(70));
            first.force(true);
            if (name.equals("again.log"))
                Files.delete(folder.resolve("t-0/" + name));
            else
                new File(folder + "/t-0/" + name).delete();
            open(folder.resolve("t-0/" + name)).write(ByteBuffer.allocate(70));
            // Of a file that has no name any more.
            first.force(true);
        }

        FileChannel moved = open(folder.resolve("u-0/0.log"));
        moved.write(ByteBuffer.allocate(8));
        moved.force(true);
        Files.move(folder.resolve("u-0"), folder.resolve("u-0.deleted"));

        FileChannel elsewhere = open(folder.resolveSibling("elsewhere"));
        elsewhere.write(ByteBuffer.allocate(1));
        elsewhere.force(true);
        Runtime.getRuntime().halt(0);
    }

    private static FileChannel open(Path path) throws Exception {
        Files.createDirectories(path.getParent());
        return FileChannel.open(path, StandardOpenOption.CREATE, StandardOpenOption.WRITE);
    }
}
