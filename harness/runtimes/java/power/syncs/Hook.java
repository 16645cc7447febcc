package power.syncs;

/**
 * A method of the JDK that calls {@link Notes} first, with its own arguments. Every sync, truncation, renaming and
 * deletion of a file ends in one of them; {@code FileDescriptor.sync} is native, and its callers are changed instead.
 */
final class Hook {
    static final Hook[] TABLE = {
        // Until JDK 20, and from JDK 21 on.
        new Hook("sun/nio/ch/FileDispatcherImpl,sun/nio/ch/UnixFileDispatcherImpl", "force", "(Ljava/io/FileDescriptor;Z)",
            "sync", "(Ljava/io/FileDescriptor;)V"),
        new Hook("sun/nio/ch/FileDispatcherImpl,sun/nio/ch/UnixFileDispatcherImpl", "truncate",
            "(Ljava/io/FileDescriptor;J)", "truncate", "(Ljava/io/FileDescriptor;J)V"),
        new Hook("sun/nio/fs/UnixNativeDispatcher", "rename", "(Lsun/nio/fs/UnixPath;Lsun/nio/fs/UnixPath;)", "rename",
            "(Ljava/lang/Object;Ljava/lang/Object;)V"),
        new Hook("sun/nio/fs/UnixNativeDispatcher", "unlink", "(Lsun/nio/fs/UnixPath;)", "remove",
            "(Ljava/lang/Object;)V"),
        new Hook("java/io/UnixFileSystem", "rename", "(Ljava/io/File;Ljava/io/File;)", "rename",
            "(Ljava/lang/Object;Ljava/lang/Object;)V"),
        new Hook("java/io/UnixFileSystem", "delete", "(Ljava/io/File;)", "remove", "(Ljava/lang/Object;)V"),
    };

    final String method;
    /** Of the method, without the type that it returns. */
    final String arguments;
    final String callee;
    final String calleeDescriptor;
    private final String[] owners;

    private Hook(String owners, String method, String arguments, String callee, String calleeDescriptor) {
        this.owners = owners.split(",");
        this.method = method;
        this.arguments = arguments;
        this.callee = callee;
        this.calleeDescriptor = calleeDescriptor;
    }

    /** The class that this JDK has the method in. */
    Class<?> type() throws ClassNotFoundException {
        for (String owner : owners) {
            try {
                Class<?> found = Class.forName(owner.replace('/', '.'), false, null);
                for (java.lang.reflect.Method one : found.getDeclaredMethods())
                    if (one.getName().equals(method))
                        return found;
            } catch (ClassNotFoundException next) {
                // another JDK has it
            }
        }
        throw new ClassNotFoundException("none of " + String.join(", ", owners) + " has " + method);
    }

    boolean isIn(String owner) {
        return java.util.Arrays.asList(owners).contains(owner);
    }

    @Override
    public String toString() {
        return owners[0] + "." + method + arguments;
    }
}
