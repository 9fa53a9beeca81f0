// Inlined has two threads. Each calls a method of its own in a method that both run: when that is
// compiled, code of both is in it, most of it far from what the JVM knows the callers of.
class Inlined {
    static volatile long sink;

    static long own1(long x) {
        x = x * 0x5851f42d4c957f2dL + 1;
        x = (x ^ x >>> 31) * 0x5851f42d4c957f2dL;
        x = (x ^ x >>> 30) * 0x5851f42d4c957f2dL;
        x = (x ^ x >>> 29) * 0x5851f42d4c957f2dL;
        x = (x ^ x >>> 28) * 0x5851f42d4c957f2dL;
        x = (x ^ x >>> 27) * 0x5851f42d4c957f2dL;
        x = (x ^ x >>> 26) * 0x5851f42d4c957f2dL;
        x = (x ^ x >>> 25) * 0x5851f42d4c957f2dL;
        return keep(x);
    }

    static long own2(long x) {
        x = x * 0x2545f4914f6cdd1dL + 1;
        x = (x ^ x >>> 21) * 0x2545f4914f6cdd1dL;
        x = (x ^ x >>> 22) * 0x2545f4914f6cdd1dL;
        x = (x ^ x >>> 23) * 0x2545f4914f6cdd1dL;
        x = (x ^ x >>> 24) * 0x2545f4914f6cdd1dL;
        x = (x ^ x >>> 25) * 0x2545f4914f6cdd1dL;
        x = (x ^ x >>> 26) * 0x2545f4914f6cdd1dL;
        x = (x ^ x >>> 27) * 0x2545f4914f6cdd1dL;
        return keep(x);
    }

    static long keep(long x) { // is not inlined
        sink = x;
        return x;
    }

    static long run(int index, long x) { // is not inlined
        return index == 1 ? own1(x) : own2(x);
    }

    static void work(int index) {
        long x = index;
        while (true) {
            x = run(index, x);
        }
    }

    static void thread1() {
        work(1);
    }

    static void thread2() {
        work(2);
    }

    public static void main(String[] arguments) throws Exception {
        for (Runnable task : new Runnable[] {Inlined::thread1, Inlined::thread2}) {
            Thread thread = new Thread(task);
            thread.setDaemon(true);
            thread.start();
        }
        System.out.println("ready");
        System.in.read();
    }
}
