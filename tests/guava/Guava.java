// A small program around Guava's BloomFilter, to check our Guava files against the real thing.
//
//   java -cp CLASSES:/usr/share/java/guava.jar Guava write N FPP < ids > filter
//   java -cp CLASSES:/usr/share/java/guava.jar Guava query FILE < ids      # 1 or 0 per line
//   java -cp CLASSES:/usr/share/java/guava.jar Guava bench N FPP         # nanoseconds as JSON
//
// IDs are the lines of standard input, as UTF-8. Only "\n" ends a line: a "\r" belongs to the ID.
// Build: javac -cp /usr/share/java/guava.jar -d CLASSES Guava.java   (Debian package libguava-java)
// A Guava from Maven also needs failureaccess.jar on the class path.

import com.google.common.hash.BloomFilter;
import com.google.common.hash.Funnels;
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Locale;

public final class Guava {
    /** IDs made at a time by bench: bounds its memory. */
    private static final int CHUNK = 1 << 18;

    private static final char[] HEX = "0123456789abcdef".toCharArray();

    public static void main(String[] args) throws IOException {
        String what = args.length > 0 ? args[0] : "";
        if (what.equals("write") && args.length == 3) {
            write(Long.parseLong(args[1]), Double.parseDouble(args[2]));
        } else if (what.equals("query") && args.length == 2) {
            query(args[1]);
        } else if (what.equals("bench") && args.length == 3) {
            bench(Long.parseLong(args[1]), Double.parseDouble(args[2]));
        } else {
            System.err.println("usage: Guava write N FPP | query FILE | bench N FPP");
            System.exit(2);
        }
    }

    private static BloomFilter<CharSequence> create(long n, double fpp) {
        return BloomFilter.create(Funnels.stringFunnel(StandardCharsets.UTF_8), n, fpp);
    }

    private static void write(long n, double fpp) throws IOException {
        BloomFilter<CharSequence> filter = create(n, fpp);
        Lines lines = new Lines();
        for (CharSequence id = lines.next(); id != null; id = lines.next()) {
            filter.put(id);
        }
        try (OutputStream out = new BufferedOutputStream(System.out, 1 << 16)) {
            filter.writeTo(out);
        }
    }

    private static void query(String file) throws IOException {
        BloomFilter<CharSequence> filter;
        try (InputStream in = new BufferedInputStream(new FileInputStream(file), 1 << 16)) {
            filter = BloomFilter.readFrom(in, Funnels.stringFunnel(StandardCharsets.UTF_8));
        }
        Lines lines = new Lines();
        try (PrintStream out = new PrintStream(new BufferedOutputStream(System.out, 1 << 16), false)) {
            for (CharSequence id = lines.next(); id != null; id = lines.next()) {
                out.write(filter.mightContain(id) ? '1' : '0');
                out.write('\n');
            }
        }
    }

    /** The lines of standard input. BufferedReader.readLine would also end a line at "\r". */
    private static final class Lines {
        private final BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8), 1 << 16);
        private final char[] buffer = new char[1 << 16];
        private int at = 0;
        private int end = 0;

        String next() throws IOException {
            StringBuilder part = null;
            while (true) {
                if (at == end) {
                    end = in.read(buffer, 0, buffer.length);
                    at = 0;
                    if (end <= 0) {
                        end = 0;
                        return part == null ? null : part.toString();
                    }
                }
                int stop = at;
                while (stop < end && buffer[stop] != '\n') {
                    stop++;
                }
                if (stop < end) {
                    int from = at;
                    at = stop + 1;
                    return part == null
                        ? new String(buffer, from, stop - from)
                        : part.append(buffer, from, stop - from).toString();
                }
                if (part == null) {
                    part = new StringBuilder();
                }
                part.append(buffer, at, end - at);
                at = end;
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

    /** The IDs of the numbers from..from+length, made before the clock runs. */
    private static void fill(String[] ids, long from, int length) {
        for (int i = 0; i < length; i++) {
            ids[i] = id(from + i);
        }
    }

    private static long timePut(BloomFilter<CharSequence> filter, String[] ids, int length) {
        long start = System.nanoTime();
        for (int i = 0; i < length; i++) {
            filter.put(ids[i]);
        }
        return System.nanoTime() - start;
    }

    private static int hits;

    private static long timeAsk(BloomFilter<CharSequence> filter, String[] ids, int length) {
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

    private static void bench(long n, double fpp) {
        String[] ids = new String[CHUNK];
        // Let the compiler see both loops first, on a small filter with other IDs.
        BloomFilter<CharSequence> small = create(CHUNK, fpp);
        for (int round = 0; round < 4; round++) {
            fill(ids, (1L << 62) + (long) round * CHUNK, CHUNK);
            timePut(small, ids, CHUNK);
            timeAsk(small, ids, CHUNK);
        }

        BloomFilter<CharSequence> filter = create(n, fpp);
        long putNanos = 0;
        for (long done = 0; done < n; done += CHUNK) {
            int length = (int) Math.min(CHUNK, n - done);
            fill(ids, done, length);
            putNanos += timePut(filter, ids, length);
        }
        // IDs that were never put, each looked up once: with a large N their words are in no cache.
        long lookups = Math.min(n, 4_000_000L);
        hits = 0;
        long queryNanos = 0;
        for (long done = 0; done < lookups; done += CHUNK) {
            int length = (int) Math.min(CHUNK, lookups - done);
            fill(ids, (1L << 61) + done, length);
            queryNanos += timeAsk(filter, ids, length);
        }
        System.out.printf(Locale.ROOT,
            "{\"n\": %d, \"fpp\": %s, \"put_ns\": %.1f, \"miss_ns\": %.1f, \"lookups\": %d, \"false_positives\": %d}%n",
            n, fpp, (double) putNanos / n, (double) queryNanos / lookups, lookups, hits);
    }
}
