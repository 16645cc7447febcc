package compaction.gate;

import java.io.File;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * The methods of the broker that the gate calls, whose classes differ between versions (in Scala up to 4.0, in Java
 * since): found once when the broker starts, which fails where one is missing.
 */
final class BrokerApi implements BrokerCalls {
    private static final List<String> LOG_DIRECTORIES = Arrays.asList("log.dirs", "log.dir");

    private final MethodHandle topicPartition;
    private final MethodHandle folder;
    private final MethodHandle highWatermark;
    private final MethodHandle config;
    private final MethodHandle configValues;
    private final MethodHandle getLog;
    private final MethodHandle isEmpty;
    private final MethodHandle get;
    private final Class<?> replicaFetcher;
    private final MethodHandle truncationOffset;
    private final MethodHandle newTruncation;
    private final MethodHandle size;
    private final MethodHandle logStartOffset;
    private final MethodHandle logEndOffset;
    private final MethodHandle isCompacted;
    private final MethodHandle logToClean;
    private final MethodHandle localBrokerId;
    private final MethodHandle logManager;
    private final MethodHandle truncate;
    private final Object noOffset;
    private final MethodHandle aborted;

    BrokerApi(ClassLoader loader) throws ReflectiveOperationException {
        Class<?> replicaManager = Hook.find(loader, Hook.REPLICA_MANAGER);
        Class<?> log = logClass(replicaManager);
        topicPartition = handle(log, "topicPartition", Object.class, Object.class);
        folder = handle(log, "dir", File.class, Object.class);
        highWatermark = handle(log, "highWatermark", long.class, Object.class);
        size = handle(log, "size", long.class, Object.class);
        logStartOffset = handle(log, "logStartOffset", long.class, Object.class);
        logEndOffset = handle(log, "logEndOffset", long.class, Object.class);
        Method logConfig = log.getMethod("config");
        isCompacted = MethodHandles.filterReturnValue(
            MethodHandles.publicLookup().unreflect(logConfig),
            MethodHandles.publicLookup().unreflectGetter(logConfig.getReturnType().getField("compact"))
        ).asType(MethodType.methodType(boolean.class, Object.class));
        logToClean = handle(Hook.find(loader, Hook.LOG_TO_CLEAN), "log", Object.class, Object.class);
        localBrokerId = handle(replicaManager, "localBrokerId", int.class, Object.class);
        logManager = handle(replicaManager, "logManager", Object.class, Object.class);
        config = handle(replicaManager, "config", Object.class, Object.class);
        configValues = handle(
            Class.forName("org.apache.kafka.common.config.AbstractConfig", false, loader), "values", Map.class, Object.class);
        getLog = MethodHandles.publicLookup().unreflect(replicaManager.getMethod("getLog", topicPartitionClass(loader)))
            .asType(MethodType.methodType(Object.class, Object.class, Object.class));
        Class<?> option = Class.forName("scala.Option", false, loader);
        isEmpty = handle(option, "isEmpty", boolean.class, Object.class);
        get = handle(option, "get", Object.class, Object.class);
        replicaFetcher = Hook.find(loader, Hook.REPLICA_FETCHER);
        Class<?> truncation = Hook.find(loader, Hook.TRUNCATION);
        truncationOffset = handle(truncation, "offset", long.class, Object.class);
        newTruncation = MethodHandles.publicLookup().findConstructor(
            truncation, MethodType.methodType(void.class, long.class, boolean.class)
        ).asType(MethodType.methodType(Object.class, long.class, boolean.class));
        aborted = MethodHandles.publicLookup().findConstructor(
            Hook.find(loader, Hook.ABORTED), MethodType.methodType(void.class)
        ).asType(MethodType.methodType(RuntimeException.class));
        Method method = truncation(replicaManager.getMethod("logManager").getReturnType());
        truncate = MethodHandles.publicLookup().unreflect(method).asType(
            MethodType.methodType(void.class, Object.class, Object.class, long.class, boolean.class, Object.class));
        noOffset = method.getParameterTypes()[3] == Optional.class
            ? Optional.empty()
            : Class.forName("scala.None$", true, loader).getField("MODULE$").get(null);
    }

    @Override
    public Object topicPartition(Object log) throws Throwable {
        return topicPartition.invokeExact(log);
    }

    @Override
    public File folder(Object log) throws Throwable {
        return (File) folder.invokeExact(log);
    }

    @Override
    public long highWatermark(Object log) throws Throwable {
        return (long) highWatermark.invokeExact(log);
    }

    /** See ServerLogConfigs: log.dirs, a list in later versions, and where it is not set log.dir. */
    @Override
    public List<File> logDirectories(Object replicaManager) throws Throwable {
        Object configured = config.invokeExact(replicaManager);
        Map<?, ?> values = (Map<?, ?>) configValues.invokeExact(configured);
        List<File> directories = new ArrayList<>();
        for (String name : LOG_DIRECTORIES) {
            Object value = values.get(name);
            String text = value == null ? "" : value.toString().replaceAll("^\\[|]$", "");
            for (String path : text.split(","))
                if (!path.trim().isEmpty())
                    directories.add(new File(path.trim()).getAbsoluteFile());
            if (!directories.isEmpty())
                break;
        }
        return directories;
    }

    @Override
    public Object logOf(Object replicaManager, Object partition) throws Throwable {
        Object log = getLog.invokeExact(replicaManager, partition);
        return (boolean) isEmpty.invokeExact(log) ? null : get.invokeExact(log);
    }

    @Override
    public boolean fetchesFromLeaders(Object fetcher) {
        return replicaFetcher.isInstance(fetcher);
    }

    @Override
    public long offsetOf(Object truncation) throws Throwable {
        return (long) truncationOffset.invokeExact(truncation);
    }

    @Override
    public Object truncationOfAll() throws Throwable {
        return newTruncation.invokeExact(0L, true);
    }

    @Override
    public long size(Object log) throws Throwable {
        return (long) size.invokeExact(log);
    }

    @Override
    public long logStartOffset(Object log) throws Throwable {
        return (long) logStartOffset.invokeExact(log);
    }

    @Override
    public long logEndOffset(Object log) throws Throwable {
        return (long) logEndOffset.invokeExact(log);
    }

    @Override
    public boolean isCompacted(Object log) throws Throwable {
        return (boolean) isCompacted.invokeExact(log);
    }

    Object log(Object toClean) throws Throwable {
        return logToClean.invokeExact(toClean);
    }

    /** What makes a cleaner drop the segments that it is writing, and let go of the log (LogCleaner.cleanLog). */
    RuntimeException aborted() throws Throwable {
        return (RuntimeException) aborted.invokeExact();
    }

    int localBrokerId(Object replicaManager) throws Throwable {
        return (int) localBrokerId.invokeExact(replicaManager);
    }

    @Override
    public void empty(Object replicaManager, Object partition) throws Throwable {
        Object manager = logManager.invokeExact(replicaManager);
        truncate.invokeExact(manager, partition, 0L, true, noOffset);
        truncate.invokeExact(manager, partition, 0L, false, noOffset);
    }

    private static Class<?> topicPartitionClass(ClassLoader loader) throws ClassNotFoundException {
        return Class.forName("org.apache.kafka.common.TopicPartition", false, loader);
    }

    /** The class that logs have: 4.0 has two of that name, and one is only a part of the other. */
    private static Class<?> logClass(Class<?> replicaManager) throws NoSuchMethodException {
        for (Method method : replicaManager.getMethods())
            if (method.getName().equals("initialFetchOffset") && method.getParameterCount() == 1)
                return method.getParameterTypes()[0];
        throw new NoSuchMethodException(replicaManager.getName() + ".initialFetchOffset(log)");
    }

    private static Method truncation(Class<?> manager) throws NoSuchMethodException {
        for (Method method : manager.getMethods()) {
            Class<?>[] types = method.getParameterTypes();
            if (method.getName().equals("truncateFullyAndStartAt") && types.length == 4 && types[1] == long.class
                && types[2] == boolean.class)
                return method;
        }
        throw new NoSuchMethodException(manager.getName() + ".truncateFullyAndStartAt(partition, long, boolean, none)");
    }

    private static MethodHandle handle(Class<?> owner, String name, Class<?> result, Class<?> receiver)
            throws ReflectiveOperationException {
        return MethodHandles.publicLookup().unreflect(owner.getMethod(name))
            .asType(MethodType.methodType(result, receiver));
    }
}
