package power.syncs;

import java.io.File;
import java.lang.instrument.Instrumentation;
import java.util.jar.JarFile;

/**
 * Has the JVM note what it syncs to disk, before the broker's main class is started; or fails: the JVM then ends, as a
 * broker without notes would seem to have synced nothing.
 *
 * The argument is LOG=FOLDER: where the notes go, and the folder whose files they are about.
 */
public final class Agent {
    private Agent() {
    }

    public static void premain(String argument, Instrumentation instrumentation) {
        try {
            String jar = new File(Agent.class.getProtectionDomain().getCodeSource().getLocation().toURI()).getPath();
            // Classes of the JDK call Notes, and see only what the boot loader has. All but this class comes from there.
            instrumentation.appendToBootstrapClassLoaderSearch(new JarFile(jar));
            int at = argument.lastIndexOf('=');
            Installation.install(argument.substring(0, at), argument.substring(at + 1), instrumentation);
        } catch (Throwable error) {
            System.err.println("sync-notes: not installed: " + error);
            System.exit(1);
        }
    }
}
