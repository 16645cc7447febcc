package compaction.gate;

import java.lang.reflect.Field;

/** Starts a broker of ZooKeeper mode, without a constructor: the agent's hook is the first thing that it runs. */
public final class StartWithZooKeeper {
    public static void main(String[] arguments) throws Exception {
        Field field = Class.forName("sun.misc.Unsafe").getDeclaredField("theUnsafe");
        field.setAccessible(true);
        Object unsafe = field.get(null);
        Class<?> server = Class.forName("kafka.server.KafkaServer");
        Object broker = unsafe.getClass().getMethod("allocateInstance", Class.class).invoke(unsafe, server);
        server.getMethod("startup").invoke(broker);
    }
}
