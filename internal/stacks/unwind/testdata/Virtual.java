import java.lang.reflect.Method;

// Virtual has a virtual thread (JDK 21 on) that recurses, waits, and uses a CPU, also in its callers, of which there are
// more than the JVM puts back on its stack at once. It ends with its standard input.
class Virtual {
    static volatile long sink;

    static void busy(int n) {
        long x = n;
        for (int i = 0; i < n; i++) {
            x = x * 31 + i;
        }
        sink = x;
    }

    static void recurse(int depth) throws Exception {
        if (depth == 0) {
            Thread.sleep(1);
        } else {
            recurse(depth - 1);
        }
        for (int i = 0; i < 20; i++) {
            busy(5_000); // not compiled while it runs: it is called often
        }
    }

    static void work() {
        try {
            while (true) {
                recurse(300);
            }
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Method start = Thread.class.getMethod("startVirtualThread", Runnable.class);
        start.invoke(null, (Runnable) Virtual::work);
        System.out.println("ready");
        System.in.read();
    }
}
