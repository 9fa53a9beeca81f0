import java.util.function.LongUnaryOperator;

// Recursion has threads that recurse to a depth, through two methods by turns, and then use the CPU, all the time or,
// with a third argument, a part of it. It ends with its standard input. The tests know lines by the comments at their
// ends.
class Recursion {
    static volatile long sink;

    // The loop's end depends on what it computes, so that compiled code has a safepoint in it.
    static long spin(long n) {
        long x = n | 1; // spin
        do {
            x = x * 6364136223846793005L + 1442695040888963407L; // spin
            x ^= x >>> 17; // spin
        } while ((x & 0x7fff) != 0); // spin
        return x; // spin
    }

    static long ping(int n) {
        if (n == 0) { // ping
            return spin(sink); // ping
        }
        return pong(n - 1) + n; // ping
    }

    static long pong(int n) {
        if (n == 0) { // pong
            return spin(sink); // pong
        }
        return ping(n - 1) + n; // pong
    }

    static void work(int depth, boolean rests) {
        LongUnaryOperator once = x -> ping(depth) + x; // once
        for (int i = 1; true; i++) {
            sink += once.applyAsLong(1); // work
            if (rests && i % 16 == 0) {
                rest();
            }
        }
    }

    static void rest() {
        try {
            Thread.sleep(10);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    public static void main(String[] arguments) throws Exception {
        int threads = Integer.parseInt(arguments[0]);
        int depth = Integer.parseInt(arguments[1]);
        for (int i = 0; i < threads; i++) {
            Thread thread = new Thread(() -> work(depth, arguments.length > 2), "worker-" + i); // run
            thread.setDaemon(true);
            thread.start();
        }
        System.out.println("ready");
        System.in.read();
    }
}
