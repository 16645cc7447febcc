package compaction.gate;

import java.io.IOException;
import java.io.InputStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.objectweb.asm.ClassReader;
import org.objectweb.asm.ClassVisitor;
import org.objectweb.asm.MethodVisitor;
import org.objectweb.asm.Opcodes;
import org.objectweb.asm.Type;

/**
 * Checks that every method and field of Kafka and of slf4j that the gate was compiled against is there: otherwise a
 * version that renamed one would be found out only when it is first used.
 */
final class References extends ClassVisitor {
    private static final List<Class<?>> USERS = Arrays.asList(ImageReader.class, Log.class);

    private final ClassLoader loader;
    private final List<String> missing = new ArrayList<>();

    private References(ClassLoader loader) {
        super(Opcodes.ASM9);
        this.loader = loader;
    }

    /** Returns what is missing, in words. */
    static List<String> missing(ClassLoader loader) throws IOException {
        References references = new References(loader);
        for (Class<?> user : USERS) {
            String name = "/" + user.getName().replace('.', '/') + ".class";
            try (InputStream bytes = References.class.getResourceAsStream(name)) {
                new ClassReader(bytes).accept(references, ClassReader.SKIP_DEBUG | ClassReader.SKIP_FRAMES);
            }
        }
        return references.missing;
    }

    @Override
    public MethodVisitor visitMethod(int access, String name, String descriptor, String signature, String[] thrown) {
        return new MethodVisitor(Opcodes.ASM9) {
            @Override
            public void visitMethodInsn(int opcode, String owner, String method, String type, boolean isInterface) {
                check(owner, method, type, true);
            }

            @Override
            public void visitFieldInsn(int opcode, String owner, String field, String type) {
                check(owner, field, type, false);
            }
        };
    }

    private void check(String owner, String name, String descriptor, boolean isMethod) {
        if (!owner.startsWith("org/apache/kafka/") && !owner.startsWith("org/slf4j/"))
            return;
        try {
            Class<?> type = Class.forName(owner.replace('/', '.'), false, loader);
            if (isMethod ? hasMethod(type, name, descriptor) : hasField(type, name, descriptor))
                return;
        } catch (ClassNotFoundException | LinkageError absent) {
            // said below
        }
        missing.add(owner.replace('/', '.') + "." + name + descriptor);
    }

    private static boolean hasMethod(Class<?> type, String name, String descriptor) {
        for (Method method : type.getMethods())
            if (method.getName().equals(name) && Type.getMethodDescriptor(method).equals(descriptor))
                return true;
        return false;
    }

    private static boolean hasField(Class<?> type, String name, String descriptor) {
        for (Field field : type.getFields())
            if (field.getName().equals(name) && Type.getDescriptor(field.getType()).equals(descriptor))
                return true;
        return false;
    }
}
