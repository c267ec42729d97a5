// The Java reader compared with Guava's BloomFilter in one JVM: nanoseconds a lookup, and how many times faster.
//
//   javac -cp GUAVA -d CLASSES java/src/main/java/bloomsday/*.java bench/java/Reader.java
//   java -Xmx2g -XX:MaxDirectMemorySize=1g -cp CLASSES:GUAVA Reader BLOB N FPP
//
// BLOB holds the IDs of bench/src/ids.rs with the numbers 0 .. N. Guava's filter is filled here with the
// same IDs. `java ... Reader ids N` prints them, one a line, to build BLOB from. A Guava from Maven also
// needs failureaccess.jar on the class path.
//
// They take turns, round after round, so that a busy machine slows all. Each turn has IDs of its own, made
// just before it: the IDs are in the processor's cache, as in a bidder that has just read them from a
// request, and the bits that they test are not. The figure of each is its median turn. It is printed for IDs
// that are all in the filter, for half of them, and for none.

import bloomsday.BloomsdayFilter;
import com.google.common.hash.BloomFilter;
import com.google.common.hash.Funnels;
import java.io.BufferedOutputStream;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Locale;

public final class Reader {
    private static final int ROUNDS = 200;
    private static final int WARM_UP = 100;
    private static final int IDS = 1 << 13;
    private static final int BATCH = 1024;
    private static final long ABSENT = 1L << 61;
    private static final byte[] HEX = "0123456789abcdef".getBytes(StandardCharsets.US_ASCII);

    private interface Contestant {
        int hits();
    }

    public static void main(String[] args) throws IOException {
        if (args[0].equals("ids")) {
            print(Long.parseLong(args[1]));
            return;
        }
        long n = Long.parseLong(args[1]);
        double fpp = Double.parseDouble(args[2]);
        long start = System.nanoTime();
        BloomsdayFilter ours = BloomsdayFilter.open(Path.of(args[0]));
        System.out.printf(Locale.ROOT, "opened in %.2f s: %s%n", (System.nanoTime() - start) / 1e9, ours.header());
        start = System.nanoTime();
        BloomsdayFilter mapped = BloomsdayFilter.map(Path.of(args[0]));
        System.out.printf(Locale.ROOT, "mapped in %.2f s%n", (System.nanoTime() - start) / 1e9);

        BloomFilter<byte[]> guava = BloomFilter.create(Funnels.byteArrayFunnel(), n, fpp);
        for (long i = 0; i < n; i++) {
            guava.put(id(i));
        }
        // The same bits for text: UTF-8 of the same IDs has the same bytes.
        ByteArrayOutputStream written = new ByteArrayOutputStream();
        guava.writeTo(written);
        BloomFilter<CharSequence> guavaText = BloomFilter.readFrom(
            new ByteArrayInputStream(written.toByteArray()), Funnels.stringFunnel(StandardCharsets.UTF_8));

        byte[][] ids = new byte[IDS][];
        String[] texts = new String[IDS];
        byte[] column = new byte[32 * BATCH];
        int[] offsets = new int[BATCH + 1];
        for (int i = 0; i <= BATCH; i++) {
            offsets[i] = 32 * i;
        }
        boolean[] answers = new boolean[BATCH];
        byte[][] batch = new byte[BATCH][];
        String[] names = {
            "Guava byte[]", "Guava String", "byte[]", "byte[] mapped", "String", "batch", "batch mapped", "column",
        };
        Contestant[] all = {
            () -> {
                int hits = 0;
                for (byte[] id : ids) {
                    hits += guava.mightContain(id) ? 1 : 0;
                }
                return hits;
            },
            () -> {
                int hits = 0;
                for (String id : texts) {
                    hits += guavaText.mightContain(id) ? 1 : 0;
                }
                return hits;
            },
            () -> single(ours, ids),
            () -> single(mapped, ids),
            () -> {
                int hits = 0;
                for (String id : texts) {
                    hits += ours.contains(id) ? 1 : 0;
                }
                return hits;
            },
            () -> batches(ours, ids, batch, answers),
            () -> batches(mapped, ids, batch, answers),
            () -> {
                int hits = 0;
                for (int first = 0; first < IDS; first += BATCH) {
                    for (int i = 0; i < BATCH; i++) {
                        System.arraycopy(ids[first + i], 0, column, 32 * i, 32);
                    }
                    ours.containsBatch(column, offsets, answers);
                    hits += count(answers);
                }
                return hits;
            },
        };
        for (int present : new int[] {2, 1, 0}) {
            System.out.println(new String[] {"absent IDs", "half present", "present IDs"}[present]);
            race(names, all, ids, texts, n, present);
        }
    }

    /** Of two IDs, `present` are in the filters. */
    private static void race(
            String[] names, Contestant[] all, byte[][] ids, String[] texts, long n, int present) {
        double[][] nanos = new double[all.length][ROUNDS];
        int[] hits = new int[all.length];
        long number = (long) present << 40;
        for (int round = -WARM_UP; round < ROUNDS; round++) {
            for (int c = 0; c < all.length; c++) {
                for (int i = 0; i < IDS; i++) {
                    number++;
                    ids[i] = id((number & 1) < present ? (mix(number) & Long.MAX_VALUE) % n : ABSENT + number);
                    texts[i] = new String(ids[i], StandardCharsets.ISO_8859_1);
                }
                long from = System.nanoTime();
                int found = all[c].hits();
                if (round >= 0) {
                    nanos[c][round] = (double) (System.nanoTime() - from) / IDS;
                    hits[c] += found;
                }
            }
        }
        for (int c = 0; c < all.length; c++) {
            Arrays.sort(nanos[c]);
            double median = nanos[c][ROUNDS / 2];
            System.out.printf(Locale.ROOT, "%-14s %6.1f ns  best %6.1f  hits %.4f", names[c], median, nanos[c][0],
                (double) hits[c] / ROUNDS / IDS);
            if (c > 1) {
                int peer = names[c].equals("String") ? 1 : 0;
                System.out.printf(Locale.ROOT, "  %.1f x %s", nanos[peer][ROUNDS / 2] / median, names[peer]);
            }
            System.out.println();
        }
    }

    private static int single(BloomsdayFilter filter, byte[][] ids) {
        int hits = 0;
        for (byte[] id : ids) {
            hits += filter.contains(id) ? 1 : 0;
        }
        return hits;
    }

    private static int batches(BloomsdayFilter filter, byte[][] ids, byte[][] batch, boolean[] answers) {
        int hits = 0;
        for (int first = 0; first < IDS; first += BATCH) {
            System.arraycopy(ids, first, batch, 0, BATCH);
            filter.containsBatch(batch, answers);
            hits += count(answers);
        }
        return hits;
    }

    private static int count(boolean[] answers) {
        int hits = 0;
        for (boolean answer : answers) {
            hits += answer ? 1 : 0;
        }
        return hits;
    }

    private static void print(long n) throws IOException {
        try (PrintStream out = new PrintStream(new BufferedOutputStream(System.out, 1 << 16), false)) {
            for (long i = 0; i < n; i++) {
                out.write(id(i));
                out.write('\n');
            }
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
    private static byte[] id(long number) {
        byte[] out = new byte[32];
        long high = mix(number);
        long low = mix(high);
        for (int i = 0; i < 16; i++) {
            out[i] = HEX[(int) (high >>> (60 - 4 * i)) & 15];
            out[16 + i] = HEX[(int) (low >>> (60 - 4 * i)) & 15];
        }
        return out;
    }
}
