package power.syncs;

import java.lang.instrument.ClassFileTransformer;
import java.nio.charset.StandardCharsets;
import java.security.ProtectionDomain;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.objectweb.asm.ClassReader;
import org.objectweb.asm.ClassVisitor;
import org.objectweb.asm.ClassWriter;
import org.objectweb.asm.MethodVisitor;
import org.objectweb.asm.Opcodes;
import org.objectweb.asm.Type;

/**
 * Inserts the calls of {@link Notes}: where the methods of {@link Hook#TABLE} begin, and before every call of
 * {@code FileDescriptor.sync}, in whatever class. Only straight-line code is inserted, so that no stack map changes.
 */
final class Weaver implements ClassFileTransformer {
    private static final String NOTES = Notes.class.getName().replace('.', '/');
    private static final String PACKAGE = NOTES.substring(0, NOTES.lastIndexOf('/') + 1);
    private static final String DESCRIPTOR = "java/io/FileDescriptor";
    private static final String CALLS = "calls of FileDescriptor.sync";

    private final Set<Object> inserted = ConcurrentHashMap.newKeySet();
    private volatile Throwable failure;

    /** Raises IllegalStateException where something was not inserted. */
    void raiseIfMissing() {
        if (failure != null)
            throw new IllegalStateException(failure);
        for (Hook hook : Hook.TABLE)
            if (!inserted.contains(hook))
                throw new IllegalStateException("nothing inserted into " + hook);
        if (!inserted.contains(CALLS))
            throw new IllegalStateException("no " + CALLS + " found");
    }

    @Override
    public byte[] transform(ClassLoader loader, String name, Class<?> before, ProtectionDomain domain, byte[] bytes) {
        // Not this package: its classes may be loaded for a class that is being changed.
        if (name == null || name.startsWith(PACKAGE) || !(isHooked(name) || loader != null && mayCallSync(bytes)))
            return null;
        try {
            ClassReader reader = new ClassReader(bytes);
            ClassWriter writer = new ClassWriter(reader, ClassWriter.COMPUTE_MAXS);
            reader.accept(new Insertion(writer, name), 0);
            return writer.toByteArray();
        } catch (Throwable error) {
            failure = error;
            return null;
        }
    }

    private static boolean isHooked(String name) {
        for (Hook hook : Hook.TABLE)
            if (hook.isIn(name))
                return true;
        return false;
    }

    private static boolean mayCallSync(byte[] bytes) {
        return new String(bytes, StandardCharsets.ISO_8859_1).contains(DESCRIPTOR);
    }

    private final class Insertion extends ClassVisitor {
        private final String owner;

        Insertion(ClassVisitor next, String owner) {
            super(Opcodes.ASM9, next);
            this.owner = owner;
        }

        @Override
        public MethodVisitor visitMethod(int access, String name, String descriptor, String signature, String[] thrown) {
            MethodVisitor visitor = super.visitMethod(access, name, descriptor, signature, thrown);
            if ((access & (Opcodes.ACC_ABSTRACT | Opcodes.ACC_NATIVE)) != 0)
                return visitor;
            for (Hook hook : Hook.TABLE)
                if (hook.isIn(owner) && hook.method.equals(name) && descriptor.startsWith(hook.arguments))
                    return new HookedMethod(visitor, hook, (access & Opcodes.ACC_STATIC) != 0, descriptor);
            return new SyncCaller(visitor);
        }
    }

    private final class HookedMethod extends MethodVisitor {
        private final Hook hook;
        private final boolean isStatic;
        private final Type[] arguments;

        HookedMethod(MethodVisitor next, Hook hook, boolean isStatic, String descriptor) {
            super(Opcodes.ASM9, next);
            this.hook = hook;
            this.isStatic = isStatic;
            this.arguments = Type.getArgumentTypes(descriptor);
        }

        @Override
        public void visitCode() {
            super.visitCode();
            int slot = isStatic ? 0 : 1;
            for (int at = 0; at < Type.getArgumentTypes(hook.calleeDescriptor).length; at++) {
                super.visitVarInsn(arguments[at].getOpcode(Opcodes.ILOAD), slot);
                slot += arguments[at].getSize();
            }
            super.visitMethodInsn(Opcodes.INVOKESTATIC, NOTES, hook.callee, hook.calleeDescriptor, false);
            inserted.add(hook);
        }
    }

    private final class SyncCaller extends MethodVisitor {
        SyncCaller(MethodVisitor next) {
            super(Opcodes.ASM9, next);
        }

        @Override
        public void visitMethodInsn(int opcode, String owner, String name, String descriptor, boolean isInterface) {
            if (owner.equals(DESCRIPTOR) && name.equals("sync")) {
                super.visitInsn(Opcodes.DUP);
                super.visitMethodInsn(Opcodes.INVOKESTATIC, NOTES, "sync", "(L" + DESCRIPTOR + ";)V", false);
                inserted.add(CALLS);
            }
            super.visitMethodInsn(opcode, owner, name, descriptor, isInterface);
        }
    }
}
