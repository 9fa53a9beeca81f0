import java.util.function.LongUnaryOperator;

// Recursion has threads that recurse to a depth, through two methods by turns, and then use the CPU. It ends with its
// standard input. The tests know lines by the comments at their ends.
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

    static void work(int depth) {
        LongUnaryOperator once = x -> ping(depth) + x; // once
        for (Rest rest = new Rest(); true; rest.take()) {
            sink += once.applyAsLong(1); // work
        }
    }

    public static void main(String[] arguments) throws Exception {
        int threads = Integer.parseInt(arguments[0]);
        int depth = Integer.parseInt(arguments[1]);
        for (int i = 0; i < threads; i++) {
            Thread thread = new Thread(() -> work(depth), "worker-" + i); // run
            thread.setDaemon(true);
            thread.start();
        }
        System.out.println("ready");
        System.in.read();
    }
}
