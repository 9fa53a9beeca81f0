import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.SplittableRandom;

/**
 * What a shop does for a request. Each method knows the CPU time that it takes, by the CPU clock of
 * its thread: of 20 ms, 10 go to {@link #price}, 6 to {@link #reserve} and 4 to {@link #receipt}.
 */
final class Shop {
    private static final List<Integer> CART = List.of(3, 14, 15, 92, 65, 35, 89, 79);
    private static final long MS = 1_000_000;

    /** CPU time of the methods, in nanoseconds. */
    final Map<String, Long> methods = new LinkedHashMap<>();

    private final SplittableRandom random = new SplittableRandom(1);
    private double total;
    private int length;

    void checkout() {
        long began = Demo.cpu();
        price(began + 10 * MS);
        long priced = Demo.cpu();
        reserve(priced + 6 * MS);
        long reserved = Demo.cpu();
        receipt(reserved + 4 * MS);
        long ended = Demo.cpu();
        spent("checkout", ended - began);
        spent("price", priced - began);
        spent("reserve", reserved - priced);
        spent("receipt", ended - reserved);
    }

    private void spent(String method, long ns) {
        methods.merge("Shop." + method, ns, Long::sum);
    }

    private void price(long until) {
        do {
            for (int day = 0; day < 100; day++) {
                CART.forEach(item -> total += discount(item));
            }
        } while (Demo.cpu() < until);
    }

    private static double discount(int item) {
        double price = 0;
        for (double rest = item * 1e9; rest > 1.0001; rest = Math.sqrt(rest)) {
            price += rest;
        }
        return price;
    }

    private void reserve(long until) {
        do {
            int[] shelves = random.ints(2000).toArray();
            Arrays.sort(shelves);
            length = shelves[0];
        } while (Demo.cpu() < until);
    }

    private void receipt(long until) {
        do {
            StringBuilder lines = new StringBuilder();
            for (int line = 0; line < 500; line++) {
                lines.append("item ").append(line).append(": ").append(total).append('\n');
            }
            length = lines.length();
        } while (Demo.cpu() < until);
    }
}
