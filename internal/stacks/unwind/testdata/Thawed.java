import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.reflect.Constructor;

// Thawed has continuations, as virtual threads have (JDK 21 on), which go on at other depths of the stack than they
// began at. It needs --add-exports java.base/jdk.internal.vm=ALL-UNNAMED, and ends with its standard input.
class Thawed {
    static final MethodHandle RUN;
    static final MethodHandle YIELD;
    static final Constructor<?> CREATE;
    static final Object SCOPE;

    static {
        try {
            Class<?> scope = Class.forName("jdk.internal.vm.ContinuationScope");
            Class<?> continuation = Class.forName("jdk.internal.vm.Continuation");
            MethodHandles.Lookup lookup = MethodHandles.lookup();
            SCOPE = scope.getConstructor(String.class).newInstance("thawed");
            CREATE = continuation.getConstructor(scope, Runnable.class);
            RUN = lookup.findVirtual(continuation, "run", MethodType.methodType(void.class))
                    .asType(MethodType.methodType(void.class, Object.class));
            YIELD = lookup.findStatic(continuation, "yield", MethodType.methodType(boolean.class, scope))
                    .bindTo(SCOPE);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    static volatile long sink;

    static void busy(int n) {
        long x = n;
        for (int i = 0; i < n; i++) {
            x = x * 31 + i;
        }
        sink = x;
    }

    static void work() {
        try {
            for (int i = 0; i < 100; i++) {
                busy(20_000);
                boolean done = (boolean) YIELD.invokeExact();
            }
        } catch (Throwable e) {
            throw new IllegalStateException(e);
        }
    }

    static void runAt(int depth, Object continuation) throws Throwable {
        if (depth == 0) {
            RUN.invokeExact(continuation);
        } else {
            runAt(depth - 1, continuation);
        }
    }

    static void start() {
        try {
            while (true) {
                Object continuation = CREATE.newInstance(SCOPE, (Runnable) Thawed::work);
                for (int i = 0; i < 100; i++) {
                    runAt((i + 4) % 8, continuation);
                }
            }
        } catch (Throwable e) {
            throw new IllegalStateException(e);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Thread starter = new Thread(Thawed::start);
        starter.setDaemon(true);
        starter.start();
        System.out.println("ready");
        System.in.read();
    }
}
