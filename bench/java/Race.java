// Guava's BloomFilter as a contestant: it does what the lines on standard input say, and prints for each
// one line, the nanoseconds that the timed part took.
//
//   java -cp CLASSES:/usr/share/java/guava.jar Race N FPP
//     put FIRST COUNT      puts the IDs of the numbers FIRST .. FIRST + COUNT    -> NANOS
//     lookup FIRST COUNT   looks them up                                         -> NANOS HITS
//
// The IDs are made before the clock runs, and are those of bench/src/ids.rs.

import com.google.common.hash.BloomFilter;
import com.google.common.hash.Funnels;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;

public final class Race {
    /** IDs made at a time: bounds the memory. */
    private static final int CHUNK = 1 << 18;

    private static final char[] HEX = "0123456789abcdef".toCharArray();

    public static void main(String[] args) throws IOException {
        long n = Long.parseLong(args[0]);
        double fpp = Double.parseDouble(args[1]);
        String[] ids = new String[CHUNK];
        warmUp(ids, fpp);
        BloomFilter<CharSequence> filter = create(n, fpp);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            long first = Long.parseLong(words[1]);
            long count = Long.parseLong(words[2]);
            long nanos = 0;
            hits = 0;
            for (long done = 0; done < count; done += CHUNK) {
                int length = (int) Math.min(CHUNK, count - done);
                fill(ids, first + done, length);
                nanos += words[0].equals("put") ? put(filter, ids, length) : lookUp(filter, ids, length);
            }
            System.out.println(nanos + " " + hits);
            System.out.flush();
        }
    }

    private static BloomFilter<CharSequence> create(long n, double fpp) {
        return BloomFilter.create(Funnels.stringFunnel(StandardCharsets.UTF_8), n, fpp);
    }

    /** Lets the compiler see both loops, on a small filter with other IDs. */
    private static void warmUp(String[] ids, double fpp) {
        BloomFilter<CharSequence> small = create(CHUNK, fpp);
        for (int round = 0; round < 4; round++) {
            fill(ids, (1L << 62) + (long) round * CHUNK, CHUNK);
            put(small, ids, CHUNK);
            lookUp(small, ids, CHUNK);
        }
    }

    private static long hits;

    private static long put(BloomFilter<CharSequence> filter, String[] ids, int length) {
        long start = System.nanoTime();
        for (int i = 0; i < length; i++) {
            filter.put(ids[i]);
        }
        return System.nanoTime() - start;
    }

    private static long lookUp(BloomFilter<CharSequence> filter, String[] ids, int length) {
        int found = 0;
        long start = System.nanoTime();
        for (int i = 0; i < length; i++) {
            if (filter.mightContain(ids[i])) {
                found++;
            }
        }
        long took = System.nanoTime() - start;
        hits += found;
        return took;
    }

    private static void fill(String[] ids, long first, int length) {
        for (int i = 0; i < length; i++) {
            ids[i] = id(first + i);
        }
    }

    /** SplitMix64: a bijection, so different numbers give different IDs. */
    private static long mix(long x) {
        x += 0x9E3779B97F4A7C15L;
        x = (x ^ (x >>> 30)) * 0xBF58476D1CE4E5B9L;
        x = (x ^ (x >>> 27)) * 0x94D049BB133111EBL;
        return x ^ (x >>> 31);
    }

    /** The ID of a number: 32 hex characters. */
    private static String id(long number) {
        char[] out = new char[32];
        long high = mix(number);
        long low = mix(high);
        for (int i = 0; i < 16; i++) {
            out[i] = HEX[(int) (high >>> (60 - 4 * i)) & 15];
            out[16 + i] = HEX[(int) (low >>> (60 - 4 * i)) & 15];
        }
        return new String(out);
    }
}
