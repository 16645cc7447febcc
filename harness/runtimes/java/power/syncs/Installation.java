package power.syncs;

import java.lang.instrument.Instrumentation;
import java.util.Collections;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;

/** Changes the classes that sync, and checks that all of them were changed. */
public final class Installation {
    /** Kafka's checkpoints are synced there: with it, that calls of FileDescriptor.sync are found is checked. */
    private static final String SYNCS = "org.apache.kafka.server.common.CheckpointFile";

    private Installation() {
    }

    public static void install(String log, String folder, Instrumentation instrumentation) throws Exception {
        // For the number of a FileDescriptor.
        instrumentation.redefineModule(Object.class.getModule(), Collections.emptySet(), Collections.emptyMap(),
            Map.of("java.io", Set.of(Notes.class.getModule())), Collections.emptySet(), Collections.emptyMap());
        Notes.open(log, folder);
        Weaver weaver = new Weaver();
        Set<Class<?>> types = new HashSet<>();
        for (Hook hook : Hook.TABLE)
            types.add(hook.type());
        instrumentation.addTransformer(weaver, true);
        instrumentation.retransformClasses(types.toArray(new Class<?>[0]));
        Class.forName(SYNCS, false, ClassLoader.getSystemClassLoader());
        weaver.raiseIfMissing();
    }
}
