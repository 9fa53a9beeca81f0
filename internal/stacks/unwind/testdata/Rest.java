import java.util.concurrent.locks.LockSupport;

// Rest has a thread that uses the CPU sleep up to three quarters of the time: enough of it is left for stacks.
public final class Rest {
    private long since = System.nanoTime();

    // take is called often, and sleeps when the thread has worked for some time.
    public void take() {
        long worked = System.nanoTime() - since;
        if (worked > 2_000_000) {
            LockSupport.parkNanos(Math.min(3 * worked, 10_000_000)); // it may have waited for a CPU
            since = System.nanoTime();
        }
    }
}
