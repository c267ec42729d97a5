package bloomsday;

import java.io.IOException;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.LongBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.time.DateTimeException;
import java.time.Duration;
import java.time.LocalDate;
import java.util.Arrays;
import java.util.Locale;
import java.util.Objects;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/**
 * A filter that was built and published by {@code bloomsday build}, opened from its blob file.
 *
 * <p>A miss is certain; a hit is wrong with the filter's false-positive probability. A filter never
 * changes and may be used by any number of threads at once. {@link Watched} follows a file that is
 * replaced every day.
 *
 * <pre>{@code
 * BloomsdayFilter seen = BloomsdayFilter.open(Path.of("rt.bloom"));
 * if (seen.contains(deviceId)) { ... }
 * }</pre>
 *
 * <p>The file's format, byte for byte, is in {@code docs/format.md} of the repository.
 */
public final class BloomsdayFilter {
    /** An ID has at least one and at most this many bytes; a lookup of any other is a miss. */
    public static final int MAX_ID_BYTES = 1024;

    /**
     * The bits lie in pieces of this many words, as a power of two. One piece could not have more
     * than 2^31 bytes; and the whole JVM waits while it zeroes a new piece, so it is far smaller.
     */
    private static final int CHUNK_BITS = 19;
    private static final String FILTER_NAME = "[a-z0-9][a-z0-9_-]{0,63}";

    /**
     * The same of a mapped file, of which nothing is zeroed: each piece counts against the number
     * of mappings that the system allows, 65,530 on Linux.
     */
    private static final int MAPPED_CHUNK_BITS = 27;

    /** A block begins where a cache line does, so that a lookup waits for one line only. */
    private static final int LINE_BYTES = 64;

    /** How many lookups of a batch wait for memory at the same time. */
    private static final int GROUP = 64;

    private static final VarHandle LONGS =
            MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);
    private static final VarHandle INTS =
            MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.LITTLE_ENDIAN);

    private final Header header;
    /** The words of the bits: little-endian ones in the layout blocked, big-endian in guava. */
    private final LongBuffer[] chunks;
    private final int chunkBits;
    private final boolean blocked;
    private final long units;
    private final int probes;

    private BloomsdayFilter(Header header, LongBuffer[] chunks, int chunkBits) {
        this.header = header;
        this.chunks = chunks;
        this.chunkBits = chunkBits;
        this.blocked = header.layout == Header.BLOCKED;
        this.units = header.units;
        this.probes = header.probes;
    }

    /**
     * Reads a blob into memory and checks it completely. Later changes of the file do not matter.
     *
     * <p>Cost: one pass over the file on the calling thread, most of it for the BLAKE3 digest; as
     * much direct memory as the file has bytes, which {@code -XX:MaxDirectMemorySize} must allow.
     * The memory is freed when the garbage collector finds that nobody uses the filter.
     *
     * @param file a blob of either layout, of format version 0 or 1
     * @return the filter
     * @throws UnsoundException if the file is not a blob, or damaged in any way
     * @throws IOException if the file cannot be read, or there is not enough memory for it
     */
    public static BloomsdayFilter open(Path file) throws IOException {
        return open(file, false, CHUNK_BITS);
    }

    /**
     * Maps a blob and checks it completely. The processes of one machine share its memory, and a
     * filter may be larger than the memory that is left.
     *
     * <p>Cost: as {@link #open(Path)}, but no memory of the JVM. A lookup waits for the disk when
     * the operating system has dropped a page, and the garbage collector may wait with it.
     *
     * <p>The file must be replaced by renaming another one to its name, never written again: a
     * change of its bytes after this check is not seen and makes answers wrong, and a lookup past a
     * new end throws {@link InternalError} or ends the JVM.
     *
     * @param file a blob of either layout, of format version 0 or 1
     * @return the filter
     * @throws UnsoundException if the file is not a blob, or damaged in any way
     * @throws IOException if the file cannot be read or mapped
     */
    public static BloomsdayFilter map(Path file) throws IOException {
        return open(file, true, MAPPED_CHUNK_BITS);
    }

    /** As the two above; tests choose small chunks. */
    static BloomsdayFilter open(Path file, boolean map, int chunkBits) throws IOException {
        if (Files.exists(file) && !Files.isRegularFile(file)) {
            // The opening of a pipe would wait for a writer.
            throw new IOException(file + " cannot be read: it is not a regular file");
        }
        try (FileChannel channel = FileChannel.open(file, StandardOpenOption.READ)) {
            return new Reader(file, channel, map, chunkBits).read();
        } catch (UnsoundException | FileSystemException e) {
            throw e; // they name the file already
        } catch (IOException e) {
            throw new IOException(file + " cannot be read: " + e, e);
        } catch (OutOfMemoryError e) {
            String remedy = map ? "" : "; raise -XX:MaxDirectMemorySize, or use map()";
            throw new IOException(
                    file + " does not fit into memory: " + e.getMessage() + remedy, e);
        }
    }

    /**
     * What the blob states about the filter.
     *
     * @return the header
     */
    public Header header() {
        return header;
    }

    /**
     * Looks up an ID by its bytes.
     *
     * @param id text as UTF-8, integers as decimal text, UUIDs as 36 lower-case characters
     * @return false if the ID is certainly not in the set, or does not have 1 to 1,024 bytes
     */
    public boolean contains(byte[] id) {
        return test(id, 0, id.length);
    }

    /**
     * Looks up an ID that lies within an array.
     *
     * @param bytes the array
     * @param offset where the ID begins
     * @param length how many bytes it has
     * @return as {@link #contains(byte[])}
     * @throws IndexOutOfBoundsException if the ID does not lie within the array
     */
    public boolean contains(byte[] bytes, int offset, int length) {
        Objects.checkFromIndexSize(offset, length, bytes.length);
        return test(bytes, offset, length);
    }

    /**
     * Looks up an ID by its text, as UTF-8. It allocates an array for these bytes.
     *
     * @param id the ID; an unpaired surrogate counts as {@code ?}, as in {@link String#getBytes()}
     * @return as {@link #contains(byte[])}
     */
    public boolean contains(String id) {
        if (id.length() > MAX_ID_BYTES) {
            return false; // each character has at least one byte
        }
        // Reading each character, to save the array, needs so many instructions that the processor
        // cannot begin the next lookup while this one waits for memory.
        return contains(id.getBytes(StandardCharsets.UTF_8));
    }

    /**
     * Looks up many IDs: faster than one at a time, because many wait for memory together.
     *
     * @param ids the IDs
     * @param answers receives the answer for each ID, as of {@link #contains(byte[])}
     * @throws IllegalArgumentException if there is not an answer for each ID
     * @throws NullPointerException if an ID is null: the answers of IDs before it may be there
     */
    public void containsBatch(byte[][] ids, boolean[] answers) {
        checkRoom(ids.length, answers.length);
        long[] hashes = new long[2 * Math.min(GROUP, ids.length)];
        for (int first = 0; first < ids.length; first += GROUP) {
            int count = Math.min(GROUP, ids.length - first);
            for (int i = 0; i < count; i++) {
                byte[] id = ids[first + i];
                if (id == null) {
                    throw new NullPointerException("ID " + (first + i) + " is null");
                }
                hash(id, 0, id.length, hashes, i);
            }
            // Only now, so that an exception leaves no answer that is none.
            for (int i = 0; i < count; i++) {
                answers[first + i] = isIdLength(ids[first + i].length);
            }
            testGroup(hashes, answers, first, count);
        }
    }

    /**
     * Looks up many IDs that lie one after the other in an array, as in a column of Arrow.
     *
     * @param bytes the bytes of all IDs
     * @param offsets one more than there are IDs: ID {@code i} begins at {@code offsets[i]} and
     *     ends before {@code offsets[i + 1]}
     * @param answers receives the answer for each ID, as of {@link #contains(byte[])}
     * @throws IllegalArgumentException if there is not an answer for each ID, or no offset at all
     * @throws IndexOutOfBoundsException if an ID does not lie within the array: the answers of IDs
     *     before it may be there
     */
    public void containsBatch(byte[] bytes, int[] offsets, boolean[] answers) {
        int ids = offsets.length - 1;
        checkRoom(ids, answers.length);
        long[] hashes = new long[2 * Math.min(GROUP, ids)];
        for (int first = 0; first < ids; first += GROUP) {
            int count = Math.min(GROUP, ids - first);
            for (int i = 0; i < count; i++) {
                int from = offsets[first + i];
                int to = offsets[first + i + 1];
                Objects.checkFromToIndex(from, to, bytes.length);
                hash(bytes, from, to - from, hashes, i);
            }
            for (int i = 0; i < count; i++) {
                int id = first + i;
                answers[id] = isIdLength(offsets[id + 1] - offsets[id]);
            }
            testGroup(hashes, answers, first, count);
        }
    }

    private static void checkRoom(int ids, int answers) {
        if (ids < 0) {
            throw new IllegalArgumentException("offsets is empty: it has one element more than there are IDs");
        }
        if (answers < ids) {
            throw new IllegalArgumentException(
                    ids + " IDs need as many answers; there is room for " + answers);
        }
    }

    private static boolean isIdLength(int length) {
        return length >= 1 && length <= MAX_ID_BYTES;
    }

    private boolean test(byte[] bytes, int offset, int length) {
        if (!isIdLength(length)) {
            return false;
        }
        if (blocked) {
            long hash = Xxh3.of(bytes, offset, length);
            return testBlock(firstWord(hash), (int) hash);
        }
        long[] hash = new long[2];
        Murmur3.of(bytes, offset, length, hash, 0);
        return testWords(hash[0], hash[1]);
    }

    /** The hash of number {@code i} of a group; none for an ID that cannot be in a set. */
    private void hash(byte[] bytes, int offset, int length, long[] hashes, int i) {
        if (!isIdLength(length)) {
            hashes[2 * i] = 0;
            hashes[2 * i + 1] = 0;
        } else if (blocked) {
            hashes[2 * i] = Xxh3.of(bytes, offset, length);
        } else {
            Murmur3.of(bytes, offset, length, hashes, 2 * i);
        }
    }

    /** Turns the answers of a group to false where a bit is not set. */
    private void testGroup(long[] hashes, boolean[] answers, int first, int count) {
        if (blocked) {
            // The processor begins to fetch all blocks before the first of them has arrived.
            long touched = 0;
            for (int i = 0; i < count; i++) {
                long word = firstWord(hashes[2 * i]);
                touched |= chunks[chunk(word)].get(within(word));
                hashes[2 * i + 1] = word;
            }
            // No square is 2; but the compiler does not know, and so keeps the loop above.
            boolean kept = touched * touched != 2;
            for (int i = 0; i < count; i++) {
                answers[first + i] &= kept & testBlock(hashes[2 * i + 1], (int) hashes[2 * i]);
            }
        } else {
            for (int i = 0; i < count; i++) {
                answers[first + i] &= testWords(hashes[2 * i], hashes[2 * i + 1]);
            }
        }
    }

    private int chunk(long word) {
        return (int) (word >>> chunkBits);
    }

    private int within(long word) {
        return (int) word & (1 << chunkBits) - 1;
    }

    /** Where the block of a hash begins. */
    private long firstWord(long hash) {
        return unsignedHigh(hash, units) << 3;
    }

    private boolean testBlock(long first, int low) {
        return testBits(chunks[chunk(first)], within(first), low, probes);
    }

    /**
     * Tests the bits of one block. There is no branch on a bit: a wrong guess would cost more than
     * all the bits, which are in one cache line. Nor is there a loop: it would make a batch slower
     * by a tenth.
     */
    @SuppressWarnings("fallthrough")
    static boolean testBits(LongBuffer chunk, int start, int low, int probes) {
        long all = 1;
        switch (probes) {
            default:
                all &= bit(chunk, start, low * SALTS[15]);
            case 15:
                all &= bit(chunk, start, low * SALTS[14]);
            case 14:
                all &= bit(chunk, start, low * SALTS[13]);
            case 13:
                all &= bit(chunk, start, low * SALTS[12]);
            case 12:
                all &= bit(chunk, start, low * SALTS[11]);
            case 11:
                all &= bit(chunk, start, low * SALTS[10]);
            case 10:
                all &= bit(chunk, start, low * SALTS[9]);
            case 9:
                all &= bit(chunk, start, low * SALTS[8]);
            case 8:
                all &= bit(chunk, start, low * SALTS[7]);
            case 7:
                all &= bit(chunk, start, low * SALTS[6]);
            case 6:
                all &= bit(chunk, start, low * SALTS[5]);
            case 5:
                all &= bit(chunk, start, low * SALTS[4]);
            case 4:
                all &= bit(chunk, start, low * SALTS[3]);
            case 3:
                all &= bit(chunk, start, low * SALTS[2]);
            case 2:
                all &= bit(chunk, start, low * SALTS[1]);
            case 1:
                all &= bit(chunk, start, low * SALTS[0]);
        }
        return (all & 1) != 0;
    }

    /** In its lowest bit, the bit of a block that the highest nine bits of a number choose. */
    private static long bit(LongBuffer chunk, int start, int number) {
        return chunk.get(start + (number >>> 29)) >>> (number >>> 23);
    }

    private boolean testWords(long h1, long h2) {
        long bits = units << 6;
        long c = h1;
        for (int i = 0; i < probes; i++) {
            long bit = (c & Long.MAX_VALUE) % bits;
            long word = bit >>> 6;
            if ((chunks[chunk(word)].get(within(word)) >>> bit & 1) == 0) {
                return false;
            }
            c += h2;
        }
        return true;
    }

    /** The high half of an unsigned 128-bit product. */
    private static long unsignedHigh(long a, long b) {
        return Math.multiplyHigh(a, b) + (a >> 63 & b) + (b >> 63 & a);
    }

    /** The fraction of pi, each word made odd: one word for each probe of a block. */
    static final int[] SALTS = {
        0x243f6a89, 0x85a308d3, 0x13198a2f, 0x03707345, 0xa4093823, 0x299f31d1, 0x082efa99,
        0xec4e6c89, 0x452821e7, 0x38d01377, 0xbe5466cf, 0x34e90c6d, 0xc0ac29b7, 0xc97c50dd,
        0x3f84d5b5, 0xb5470917,
    };

    /**
     * A file is not a blob, is damaged, is of a kind or a version that this reader does not know, or
     * is of another filter than the expected one.
     */
    public static final class UnsoundException extends IOException {
        private static final long serialVersionUID = 1L;

        private UnsoundException(String message) {
            super(message);
        }
    }

    /** What a blob states about its filter. */
    public static final class Header {
        private static final int BLOCKED = 0;
        private static final int URLS = 2;
        private static final int GUAVA = 1;

        private String filter;
        private LocalDate day;
        private int formatVersion;
        private int layout;
        private long units;
        private int probes;
        private long bodyBytes;
        private boolean idsEstimated;
        private long ids;
        private double fppTarget;
        private long fppHits;
        private long fppLookups;
        private long ones;
        private long bytes;
        private String digest;

        private Header() {}

        /**
         * The name of the filter.
         *
         * @return such as {@code rt}
         */
        public String filter() {
            return filter;
        }

        /**
         * The UTC day whose IDs are in the filter.
         *
         * @return a date
         */
        public LocalDate day() {
            return day;
        }

        /**
         * The version of the file's format.
         *
         * @return 0 or 1
         */
        public int formatVersion() {
            return formatVersion;
        }

        /**
         * How bits are arranged.
         *
         * @return {@code blocked} or {@code guava}
         */
        public String layout() {
            return layout == BLOCKED ? "blocked" : "guava";
        }

        /**
         * How many bits a lookup tests.
         *
         * @return 1 to 16, with the layout guava up to 125
         */
        public int probes() {
            return probes;
        }

        /**
         * How many blocks of 64 bytes ({@code blocked}) or words of 8 bytes ({@code guava}) it has.
         *
         * @return a count
         */
        public long units() {
            return units;
        }

        /**
         * How many bits the filter has.
         *
         * @return a count
         */
        public long bits() {
            return units * (layout == BLOCKED ? 512 : 64);
        }

        /**
         * The size of the file.
         *
         * @return in bytes
         */
        public long bytes() {
            return bytes;
        }

        /**
         * How many distinct IDs are in the filter.
         *
         * @return a count, or an estimate if {@link #idsEstimated()}
         */
        public long ids() {
            return ids;
        }

        /**
         * Whether the number of IDs is estimated, because the filter was imported.
         *
         * @return false for a filter that was built from IDs
         */
        public boolean idsEstimated() {
            return idsEstimated;
        }

        /**
         * The false-positive probability that the filter was sized for.
         *
         * @return between 0 and 1
         */
        public double fppTarget() {
            return fppTarget;
        }

        /**
         * The false-positive probability that was measured when the filter was built.
         *
         * @return {@link #fppHits()} divided by {@link #fppLookups()}; 0 if nothing was measured
         */
        public double fppMeasured() {
            return (double) fppHits / Math.max(fppLookups, 1);
        }

        /**
         * How many lookups of absent IDs were hits when the fpp was measured.
         *
         * @return a count
         */
        public long fppHits() {
            return fppHits;
        }

        /**
         * How many absent IDs were looked up to measure the fpp.
         *
         * @return a count
         */
        public long fppLookups() {
            return fppLookups;
        }

        /**
         * The share of bits that are set.
         *
         * @return between 0 and 1
         */
        public double fill() {
            return (double) ones / bits();
        }

        /**
         * BLAKE3 of the file without its last 32 bytes. It is in the blob's name in the store.
         *
         * @return 64 lower-case hex digits
         */
        public String digest() {
            return digest;
        }

        /** One line for a log. */
        @Override
        public String toString() {
            return String.format(
                    Locale.ROOT, "%s of %s, %d IDs, %s, fpp %s, %d bytes, digest %s",
                    filter, day, ids, layout(), fppTarget, bytes, digest);
        }

        /** The share of set bits that theory expects, and how far a sound filter may be from it. */
        private double[] expectedFill() {
            double n = ids;
            double k = probes;
            double bits = bits();
            double fill;
            if (layout == BLOCKED) {
                // The mean of 1 - (1 - 1/512)^(k load) over Poisson loads of blocks.
                double load = n / units;
                fill = -Math.expm1(load * Math.expm1(k * Math.log1p(-1.0 / 512)));
            } else {
                fill = -Math.expm1(-k * n / bits);
            }
            double deviation = k * Math.sqrt(n / 2) / bits;
            return new double[] {fill, Math.max(0.01 * fill, 6 * deviation)};
        }
    }

    /**
     * A file that another program replaces, and the filter that was last sound in it.
     *
     * <p>A thread of its own checks the file in an interval. When another file was renamed to its
     * name, the thread reads and checks that one and then puts the new filter in the old one's
     * place; lookups go on and wait for nothing. A file that is damaged, absent, unreadable or of
     * another filter changes nothing but {@link #lastFailure()}. A damaged one is read again when it
     * has changed, and once an hour.
     *
     * <p>Memory: two filters while a new one is read, and until the garbage collector has found
     * that nobody uses the old one.
     *
     * <pre>{@code
     * try (Watched seen = Watched.open(Path.of("/var/lib/bloomsday/rt.bloom"), "rt", interval)) {
     *     if (seen.filter().contains(deviceId)) { ... }
     * }
     * }</pre>
     */
    public static final class Watched implements AutoCloseable {
        private static final Duration SHORTEST = Duration.ofMillis(1);
        private static final Duration LONGEST = Duration.ofMillis(Long.MAX_VALUE);
        /** How long an unsound file is left alone: what was read badly may be good on the disk. */
        private static final long UNSOUND_PAUSE_NANOS = TimeUnit.HOURS.toNanos(1);

        private final Path file;
        private final boolean map;
        /** The name of the filter; null if any will do. */
        private final String expected;
        private final CountDownLatch closed = new CountDownLatch(1);
        private volatile BloomsdayFilter filter;
        private volatile Throwable lastFailure;
        /** Of the file that was read last; and what was wrong with it, or null. */
        private String stamp = "";
        private UnsoundException unsound;
        /** When an unsound file is read once more, by {@link System#nanoTime()}. */
        long again;

        private Watched(Path file, boolean map, String expected) {
            this.file = file;
            this.map = map;
            this.expected = expected;
        }

        /**
         * Opens the file as {@link BloomsdayFilter#open(Path)} does, and again after each change.
         * A file of any filter will do.
         *
         * @param file the file
         * @param interval how often to check; at least a millisecond
         * @return the file, watched until it is closed
         * @throws IOException as {@link BloomsdayFilter#open(Path)}
         * @throws IllegalArgumentException if the interval is shorter than a millisecond
         */
        public static Watched open(Path file, Duration interval) throws IOException {
            return start(new Watched(file, false, null), interval);
        }

        /**
         * As {@link #open(Path, Duration)}, but a file of another filter counts as damaged.
         *
         * @param file the file
         * @param filter the name of the filter, such as {@code rt}
         * @param interval how often to check; at least a millisecond
         * @return the file, watched until it is closed
         * @throws IOException as {@link BloomsdayFilter#open(Path)}
         * @throws IllegalArgumentException if the interval is shorter than a millisecond, or the
         *     name cannot be one of a filter
         */
        public static Watched open(Path file, String filter, Duration interval)
                throws IOException {
            return start(new Watched(file, false, Objects.requireNonNull(filter, "filter")), interval);
        }

        /**
         * Opens the file as {@link BloomsdayFilter#map(Path)} does, and again after each change.
         * A file of any filter will do.
         *
         * @param file the file
         * @param interval how often to check; at least a millisecond
         * @return the file, watched until it is closed
         * @throws IOException as {@link BloomsdayFilter#map(Path)}
         * @throws IllegalArgumentException if the interval is shorter than a millisecond
         */
        public static Watched map(Path file, Duration interval) throws IOException {
            return start(new Watched(file, true, null), interval);
        }

        /**
         * As {@link #map(Path, Duration)}, but a file of another filter counts as damaged.
         *
         * @param file the file
         * @param filter the name of the filter, such as {@code rt}
         * @param interval how often to check; at least a millisecond
         * @return the file, watched until it is closed
         * @throws IOException as {@link BloomsdayFilter#map(Path)}
         * @throws IllegalArgumentException if the interval is shorter than a millisecond, or the
         *     name cannot be one of a filter
         */
        public static Watched map(Path file, String filter, Duration interval) throws IOException {
            return start(new Watched(file, true, Objects.requireNonNull(filter, "filter")), interval);
        }

        private static Watched start(Watched watched, Duration interval) throws IOException {
            if (watched.expected != null && !watched.expected.matches(FILTER_NAME)) {
                throw new IllegalArgumentException(
                        "`" + watched.expected + "` is not the name of a filter");
            }
            if (interval.compareTo(SHORTEST) < 0) {
                throw new IllegalArgumentException(
                        "the interval is " + interval + "; it must be at least a millisecond");
            }
            // A longer one has no number of milliseconds, and does not end either.
            long millis = interval.compareTo(LONGEST) < 0 ? interval.toMillis() : Long.MAX_VALUE;
            watched.reload();
            Thread thread = new Thread(() -> watched.watch(millis), "bloomsday-" + watched.file);
            thread.setDaemon(true);
            thread.start();
            return watched;
        }

        /**
         * The current filter. Cost: one read of a volatile field. Take it once for IDs that must be
         * looked up in the same day.
         *
         * @return the filter that was last sound
         */
        public BloomsdayFilter filter() {
            return filter;
        }

        /**
         * Why the last check of the file failed.
         *
         * @return null if the current filter is that of the current file
         */
        public Throwable lastFailure() {
            return lastFailure;
        }

        /**
         * Looks at the file now, and opens it if it has changed or was unsound. Waits until that is
         * done.
         *
         * @return whether there is a new filter
         * @throws IOException as {@link BloomsdayFilter#open(Path)}; the old filter stays
         */
        public boolean reload() throws IOException {
            return poll(true);
        }

        /** As the thread does it: what was unsound is not read again until the file has changed. */
        boolean check() throws IOException {
            return poll(false);
        }

        private synchronized boolean poll(boolean rereadUnsound) throws IOException {
            try {
                // Before the file is opened: what replaces it meanwhile has another stamp.
                String now = stampOf(file);
                boolean isDue = rereadUnsound || System.nanoTime() - again >= 0;
                if (now.equals(stamp) && !(isDue && unsound != null)) {
                    lastFailure = unsound;
                    return false;
                }
                filter = openExpected(now);
                lastFailure = null;
                return true;
            } catch (IOException | RuntimeException | Error e) {
                lastFailure = e;
                throw e;
            }
        }

        /** Opens the file, and notes by its stamp whether it was sound. */
        private BloomsdayFilter openExpected(String now) throws IOException {
            try {
                BloomsdayFilter opened = map
                        ? BloomsdayFilter.map(file) : BloomsdayFilter.open(file);
                String found = opened.header.filter;
                if (expected != null && !expected.equals(found)) {
                    throw new UnsoundException(
                            file + " is a blob of the filter `" + found + "`: expected `" + expected
                                    + "`");
                }
                stamp = now;
                unsound = null;
                return opened;
            } catch (UnsoundException e) {
                stamp = now;
                unsound = e;
                again = System.nanoTime() + UNSOUND_PAUSE_NANOS;
                throw e;
            }
        }

        /** Stops watching. The filter can still be used. */
        @Override
        public void close() {
            closed.countDown();
        }

        private void watch(long millis) {
            try {
                while (!closed.await(millis, TimeUnit.MILLISECONDS)) {
                    try {
                        check();
                    } catch (IOException | RuntimeException | Error e) {
                        // It is in lastFailure; the next check tries again.
                    }
                }
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }

        /** What differs after another file was renamed to this name. */
        private static String stampOf(Path file) throws IOException {
            BasicFileAttributes found = Files.readAttributes(file, BasicFileAttributes.class);
            long modified = found.lastModifiedTime().to(TimeUnit.NANOSECONDS);
            return found.fileKey() + " " + found.size() + " " + modified;
        }
    }

    /** Reads and checks one file. */
    private static final class Reader {
        private static final byte[] MAGIC = "BLOOMSDY".getBytes(StandardCharsets.US_ASCII);
        private static final int NEWEST_VERSION = 1;
        private static final int FIXED_BYTES = 14;
        private static final int MAX_RECORD_BYTES = 65_536;
        private static final int ALIGNMENT = 4096;
        private static final int DIGEST_BYTES = 32;
        private static final int GUAVA_HEADER_BYTES = 6;
        private static final int TEST_IDS = 64;
        private static final int PIECE_BYTES = 1 << 16;

        private final Path file;
        private final FileChannel channel;
        private final boolean map;
        private final int chunkBits;
        private final Header header = new Header();
        private long[] testHashes;
        private long[] testPositions;

        Reader(Path file, FileChannel channel, boolean map, int chunkBits) {
            this.file = file;
            this.channel = channel;
            this.map = map;
            this.chunkBits = chunkBits;
        }

        BloomsdayFilter read() throws IOException {
            byte[] head = readHead(readFixed());
            Blake3 hasher = new Blake3();
            hasher.update(head, 0, head.length);
            long bitsAt = head.length;
            if (header.layout == Header.GUAVA) {
                hashGuavaHead(bitsAt, hasher);
                bitsAt += GUAVA_HEADER_BYTES;
            }
            LongBuffer[] chunks = readBits(bitsAt, hasher);
            checkDigest(hasher);
            checkTestVector();
            checkFill();
            return new BloomsdayFilter(header, chunks, chunkBits);
        }

        /** The bytes in front of the record, which say how long it is. */
        private int readFixed() throws IOException {
            long size = channel.size();
            require(size >= FIXED_BYTES + DIGEST_BYTES,
                    "expected at least %d bytes, but it has %d", FIXED_BYTES + DIGEST_BYTES, size);
            byte[] fixed = bytesAt(0, FIXED_BYTES);
            byte[] magic = Arrays.copyOf(fixed, MAGIC.length);
            require(Arrays.equals(magic, MAGIC),
                    "expected BLOOMSDY at its beginning, but there is %s", hex(magic));
            header.bytes = size;
            header.formatVersion = fixed[8] & 255 | (fixed[9] & 255) << 8;
            require(header.formatVersion <= NEWEST_VERSION,
                    "expected format version 0 or 1, but it is %d: a newer reader may know it",
                    header.formatVersion);
            int recordBytes = (int) INTS.get(fixed, 10);
            require(recordBytes >= 0 && recordBytes <= MAX_RECORD_BYTES,
                    "expected a record of at most %d bytes, but it says %d", MAX_RECORD_BYTES,
                    recordBytes & 0xffffffffL);
            return recordBytes;
        }

        /** All that lies in front of the body: with it the file's size is known. */
        private byte[] readHead(int recordBytes) throws IOException {
            int recordEnd = FIXED_BYTES + recordBytes;
            int bodyAt = (recordEnd + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
            require(header.bytes >= bodyAt + DIGEST_BYTES,
                    "expected a header of %d bytes, but it ends after %d", bodyAt, header.bytes);
            byte[] head = bytesAt(0, bodyAt);
            readRecord(new Record(Arrays.copyOfRange(head, FIXED_BYTES, recordEnd)));
            for (int i = recordEnd; i < bodyAt; i++) {
                require(head[i] == 0, "expected zeros before its body, but byte %d is %d", i,
                        head[i]);
            }
            // No sum overflows: a body has less than 2^39 bytes.
            long expected = bodyAt + header.bodyBytes + DIGEST_BYTES;
            require(header.bytes == expected, "expected %d bytes, but it has %d", expected,
                    header.bytes);
            return head;
        }

        private void readRecord(Record record) throws UnsoundException {
            String name = record.text(64);
            String day = record.text(10);
            readShape(record);
            readHash(record);
            readCounts(record);
            testHashes = record.list(TEST_IDS * (header.layout == Header.BLOCKED ? 1 : 2));
            testPositions = record.list(TEST_IDS * header.probes);
            record.end();

            require(name.matches(FILTER_NAME),
                    "expected the name of a filter, but it is `%s`", printable(name));
            header.filter = name;
            require(day.matches("(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}"),
                    "expected a day as YYYY-MM-DD, but it is `%s`", printable(day));
            try {
                header.day = LocalDate.parse(day);
            } catch (DateTimeException e) {
                throw unsound("expected a day of the calendar, but it is `%s`", day);
            }
        }

        /** The layout, and how many units, probes and bytes it has. */
        private void readShape(Record record) throws UnsoundException {
            header.layout = record.number(1, "the layout", 0, 3);
            require(header.layout <= 1,
                    "its layout is `spark%d`, and this class reads `blocked` and `guava`",
                    header.layout - 1);
            boolean blocked = header.layout == Header.BLOCKED;
            header.units = record.integer();
            long maxUnits = blocked ? 1L << 32 : Integer.MAX_VALUE;
            require(header.units >= 1 && header.units <= maxUnits,
                    "expected 1 to %d units, but it says %s", maxUnits, unsigned(header.units));
            header.probes = record.number(4, "the number of probes", 1, blocked ? 16 : 125);
            header.bodyBytes = record.integer();
            long expected =
                    blocked ? 64 * header.units : GUAVA_HEADER_BYTES + 8 * header.units;
            require(header.bodyBytes == expected, "expected a body of %d bytes, but it says %s",
                    expected, unsigned(header.bodyBytes));
        }

        /** How an ID becomes a hash: as the layout says, without a key. */
        private void readHash(Record record) throws UnsoundException {
            boolean blocked = header.layout == Header.BLOCKED;
            record.number(1, "the hash", blocked ? 0 : 1, blocked ? 0 : 1);
            record.number(2, "the hash's bits", blocked ? 64 : 128, blocked ? 64 : 128);
            long seed = record.integer();
            require(seed == (blocked ? Xxh3.SEED : 0), "expected the hash's seed %x, but it is %x",
                    blocked ? Xxh3.SEED : 0, seed);
            long key = record.integer();
            require(key == 0, "expected the key id 0, but it is %s", unsigned(key));
            int encoding = record.number(1, "the encoding of IDs", 0, 255);
            require(encoding != Header.URLS,
                    "its IDs are URLs, which this class does not normalise: look them up by the"
                            + " daemon, or in Python or C");
            require(encoding == 0, "expected that the encoding of IDs is 0, but it is %d", encoding);
        }

        /** What was counted and measured at the build. */
        private void readCounts(Record record) throws UnsoundException {
            header.idsEstimated = record.number(1, "the origin", 0, 1) == 1;
            header.ids = record.integer();
            require(header.ids >= 1 && header.ids <= header.bits(),
                    "expected 1 to %d IDs, but it says %s", header.bits(), unsigned(header.ids));
            header.fppTarget = Double.longBitsToDouble(record.integer());
            require(header.fppTarget > 0 && header.fppTarget < 1,
                    "expected an fpp target between 0 and 1, but it is %s", header.fppTarget);
            header.fppHits = record.integer();
            header.fppLookups = record.integer();
            require(header.fppLookups >= 0 && header.fppHits >= 0
                            && header.fppHits <= header.fppLookups,
                    "expected at most as many hits as lookups, of at most 2^63 - 1, but it says %s of %s",
                    unsigned(header.fppHits), unsigned(header.fppLookups));
            header.ones = record.integer();
        }

        /** The head that Guava's own files have, too: its kind, the probes and the words. */
        private void hashGuavaHead(long at, Blake3 hasher) throws IOException {
            byte[] head = bytesAt(at, GUAVA_HEADER_BYTES);
            byte[] expected = ByteBuffer.allocate(GUAVA_HEADER_BYTES)
                    .put((byte) 1).put((byte) header.probes).putInt((int) header.units).array();
            require(Arrays.equals(head, expected),
                    "expected a body that begins with %s, but it begins with %s", hex(expected),
                    hex(head));
            hasher.update(head, 0, head.length);
        }

        /** The bits, in chunks. They are hashed where they lie: what is checked is what answers. */
        private LongBuffer[] readBits(long bitsAt, Blake3 hasher) throws IOException {
            long bytes = header.bits() / 8;
            long chunkBytes = 8L << chunkBits;
            LongBuffer[] chunks = new LongBuffer[(int) ((bytes + chunkBytes - 1) / chunkBytes)];
            ByteOrder order = header.layout == Header.BLOCKED
                    ? ByteOrder.LITTLE_ENDIAN : ByteOrder.BIG_ENDIAN;
            byte[] piece = new byte[PIECE_BYTES];
            long ones = 0;
            for (int i = 0; i < chunks.length; i++) {
                long at = i * chunkBytes;
                int length = (int) Math.min(chunkBytes, bytes - at);
                ByteBuffer source;
                if (map) {
                    source = channel.map(FileChannel.MapMode.READ_ONLY, bitsAt + at, length);
                } else {
                    // The slice loses less than a line at each end.
                    source = ByteBuffer.allocateDirect(length + 2 * LINE_BYTES)
                            .alignedSlice(LINE_BYTES).limit(length).slice();
                    assert source.alignmentOffset(0, LINE_BYTES) == 0;
                    fill(source, bitsAt + at);
                    source.clear();
                }
                // Read-only as a mapped one is: with one class of buffers there is one way to inline.
                chunks[i] = source.asReadOnlyBuffer().order(order).asLongBuffer();
                while (source.hasRemaining()) {
                    int part = Math.min(piece.length, source.remaining());
                    source.get(piece, 0, part);
                    hasher.update(piece, 0, part);
                    for (int j = 0; j < part; j += 8) { // a part is a multiple of 8 bytes
                        ones += Long.bitCount((long) LONGS.get(piece, j));
                    }
                }
            }
            require(ones == header.ones, "expected that %s bits are set, but %d are",
                    unsigned(header.ones), ones);
            return chunks;
        }

        private void checkDigest(Blake3 hasher) throws IOException {
            header.digest = hex(hasher.finish());
            String stated = hex(bytesAt(header.bytes - DIGEST_BYTES, DIGEST_BYTES));
            require(header.digest.equals(stated),
                    "expected the digest %s, which it states, but its bytes have %s", stated,
                    header.digest);
        }

        private void checkFill() throws UnsoundException {
            double[] expected = header.expectedFill();
            require(Math.abs(header.fill() - expected[0]) <= expected[1],
                    "expected that %d IDs set %.4f of its bits, but %.4f are set", header.ids,
                    expected[0], header.fill());
        }

        /** Proves that this reader hashes and addresses as the writer of the file did. */
        private void checkTestVector() throws UnsoundException {
            for (int i = 0; i < TEST_IDS; i++) {
                byte[] id = testId(i);
                long[] hash = new long[2];
                long[] positions = new long[header.probes];
                boolean blocked = header.layout == Header.BLOCKED;
                if (blocked) {
                    hash[0] = Xxh3.of(id, 0, id.length);
                    long block = unsignedHigh(hash[0], header.units);
                    for (int j = 0; j < positions.length; j++) {
                        positions[j] = 512 * block + ((int) hash[0] * SALTS[j] >>> 23);
                    }
                } else {
                    Murmur3.of(id, 0, id.length, hash, 0);
                    long c = hash[0];
                    for (int j = 0; j < positions.length; j++, c += hash[1]) {
                        positions[j] = (c & Long.MAX_VALUE) % header.bits();
                    }
                }
                int hashes = blocked ? 1 : 2;
                for (int j = 0; j < hashes; j++) {
                    require(hash[j] == testHashes[hashes * i + j],
                            "expected that test ID %d has the hash %x, but it is %x", i,
                            testHashes[hashes * i + j], hash[j]);
                }
                for (int j = 0; j < positions.length; j++) {
                    long stated = testPositions[header.probes * i + j];
                    require(positions[j] == stated,
                            "expected that test ID %d tests bit %s, but it tests bit %d", i,
                            unsigned(stated), positions[j]);
                }
            }
        }

        private static byte[] testId(int i) {
            byte[] id = new byte[i < 16 ? i + 1 : 16 + 21 * (i - 15)];
            for (int j = 0; j < id.length; j++) {
                id[j] = (byte) ('a' + (i + j) % 26);
            }
            return id;
        }

        private byte[] bytesAt(long at, int length) throws IOException {
            ByteBuffer buffer = ByteBuffer.allocate(length);
            fill(buffer, at);
            return buffer.array();
        }

        private void fill(ByteBuffer buffer, long at) throws IOException {
            while (buffer.hasRemaining()) {
                int read = channel.read(buffer, at + buffer.position());
                if (read < 0) {
                    throw unsound("it became shorter while it was read: expected %d bytes at %d",
                            buffer.remaining(), at + buffer.position());
                }
            }
        }

        private void require(boolean holds, String format, Object... arguments)
                throws UnsoundException {
            if (!holds) {
                throw unsound(format, arguments);
            }
        }

        private UnsoundException unsound(String format, Object... arguments) {
            return new UnsoundException(file + " is no blob that this class can look up in: "
                    + String.format(Locale.ROOT, format, arguments));
        }

        private static String unsigned(long number) {
            return Long.toUnsignedString(number);
        }

        private static String printable(String text) {
            return text.replaceAll("[^ -~]", "?");
        }

        private static String hex(byte[] bytes) {
            StringBuilder text = new StringBuilder(2 * bytes.length);
            for (byte b : bytes) {
                text.append(Character.forDigit(b >> 4 & 15, 16));
                text.append(Character.forDigit(b & 15, 16));
            }
            return text.toString();
        }

        /** The fields of a record, one after the other. */
        private final class Record {
            private final byte[] bytes;
            private int at;

            Record(byte[] bytes) {
                this.bytes = bytes;
            }

            private int take(int count) throws UnsoundException {
                require(count <= bytes.length - at,
                        "expected %d bytes more in its record of %d bytes, but %d are left", count,
                        bytes.length, bytes.length - at);
                at += count;
                return at - count;
            }

            long integer() throws UnsoundException {
                return (long) LONGS.get(bytes, take(8));
            }

            /** An integer of one, two or four bytes that lies between two numbers. */
            int number(int width, String what, int least, int most) throws UnsoundException {
                int from = take(width);
                long number = 0;
                for (int i = width - 1; i >= 0; i--) {
                    number = number << 8 | bytes[from + i] & 255;
                }
                if (least == most) {
                    require(number == least, "expected that %s is %d, but it is %d", what, least,
                            number);
                } else {
                    require(number >= least && number <= most,
                            "expected that %s is %d to %d, but it is %d", what, least, most,
                            number);
                }
                return (int) number;
            }

            String text(int most) throws UnsoundException {
                long length = integer();
                require(length >= 0 && length <= most,
                        "expected a text of at most %d bytes, but it says %s", most,
                        unsigned(length));
                // What is not ASCII is refused later.
                return new String(
                        bytes, take((int) length), (int) length, StandardCharsets.ISO_8859_1);
            }

            long[] list(int expected) throws UnsoundException {
                long length = integer();
                require(length == expected, "expected a list of %d numbers, but it says %s",
                        expected, unsigned(length));
                long[] numbers = new long[expected];
                for (int i = 0; i < expected; i++) {
                    numbers[i] = integer();
                }
                return numbers;
            }

            void end() throws UnsoundException {
                require(at == bytes.length,
                        "expected a record of %d bytes, but it says %d", at, bytes.length);
            }
        }
    }

    /** XXH3-64 (Yann Collet) with the seed of the format, for 1 to 1,024 bytes. */
    static final class Xxh3 {
        /** "Bloomsda" in ASCII. */
        static final long SEED = 0x426c6f6f6d736461L;

        private static final long P32_1 = 0x9E3779B1L;
        private static final long P32_2 = 0x85EBCA77L;
        private static final long P32_3 = 0xC2B2AE3DL;
        private static final long P64_1 = 0x9E3779B185EBCA87L;
        private static final long P64_2 = 0xC2B2AE3D27D4EB4FL;
        private static final long P64_3 = 0x165667B19E3779F9L;
        private static final long P64_4 = 0x85EBCA77C2B2AE63L;
        private static final long P64_5 = 0x27D4EB2F165667C5L;

        /** The default secret of the reference library. */
        private static final byte[] SECRET = bytesOf(
                "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
                        + "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
                        + "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
                        + "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
                        + "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
                        + "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e");
        /** The secret with the seed added to even words and taken from odd ones. */
        private static final byte[] SEEDED = new byte[192];
        private static final long[] WORDS = new long[24];
        /** The same from the secret's fourth byte on: for the second half of 129 to 240 bytes. */
        private static final long[] WORDS_AT_3 = new long[16];

        static {
            for (int i = 0; i < WORDS.length; i++) {
                WORDS[i] = (long) LONGS.get(SECRET, 8 * i) + ((i & 1) == 0 ? SEED : -SEED);
                LONGS.set(SEEDED, 8 * i, WORDS[i]);
            }
            for (int i = 0; i < WORDS_AT_3.length; i++) {
                WORDS_AT_3[i] = (long) LONGS.get(SECRET, 3 + 8 * i) + ((i & 1) == 0 ? SEED : -SEED);
            }
        }

        private static final long FLIP_TO_3 =
                (((int) INTS.get(SECRET, 0) ^ (int) INTS.get(SECRET, 4)) & 0xffffffffL) + SEED;
        private static final long FLIP_TO_8 =
                ((long) LONGS.get(SECRET, 8) ^ (long) LONGS.get(SECRET, 16))
                        - (SEED ^ (long) Integer.reverseBytes((int) SEED) << 32);
        private static final long FLIP_TO_16_LOW =
                ((long) LONGS.get(SECRET, 24) ^ (long) LONGS.get(SECRET, 32)) + SEED;
        private static final long FLIP_TO_16_HIGH =
                ((long) LONGS.get(SECRET, 40) ^ (long) LONGS.get(SECRET, 48)) - SEED;

        private Xxh3() {}

        static long of(byte[] b, int at, int length) {
            if (length > 16) {
                return length <= 128 ? to128(b, at, length)
                        : length <= 240 ? to240(b, at, length) : to1024(b, at, length);
            }
            if (length > 8) {
                long low = word(b, at) ^ FLIP_TO_16_LOW;
                long high = word(b, at + length - 8) ^ FLIP_TO_16_HIGH;
                return avalanche(length + Long.reverseBytes(low) + high + fold(low, high));
            }
            if (length >= 4) {
                long first = (int) INTS.get(b, at);
                long last = (int) INTS.get(b, at + length - 4) & 0xffffffffL;
                long h = last + (first << 32) ^ FLIP_TO_8;
                h ^= Long.rotateLeft(h, 49) ^ Long.rotateLeft(h, 24);
                h *= 0x9FB21C651E98DF25L;
                h ^= (h >>> 35) + length;
                h *= 0x9FB21C651E98DF25L;
                return h ^ h >>> 28;
            }
            long first = b[at] & 255;
            long middle = b[at + (length >> 1)] & 255;
            long last = b[at + length - 1] & 255;
            long h = (first << 16 | middle << 24 | last | (long) length << 8) ^ FLIP_TO_3;
            h = (h ^ h >>> 33) * P64_2;
            h = (h ^ h >>> 29) * P64_3;
            return h ^ h >>> 32;
        }

        private static long to128(byte[] b, int at, int length) {
            int end = at + length;
            long h = length * P64_1;
            if (length > 32) {
                if (length > 64) {
                    if (length > 96) {
                        h += mix(b, at + 48, WORDS, 12) + mix(b, end - 64, WORDS, 14);
                    }
                    h += mix(b, at + 32, WORDS, 8) + mix(b, end - 48, WORDS, 10);
                }
                h += mix(b, at + 16, WORDS, 4) + mix(b, end - 32, WORDS, 6);
            }
            return avalanche(h + mix(b, at, WORDS, 0) + mix(b, end - 16, WORDS, 2));
        }

        private static long to240(byte[] b, int at, int length) {
            long h = length * P64_1;
            for (int i = 0; i < 8; i++) {
                h += mix(b, at + 16 * i, WORDS, 2 * i);
            }
            h = avalanche(h);
            for (int i = 8; i < length / 16; i++) {
                h += mix(b, at + 16 * i, WORDS_AT_3, 2 * (i - 8));
            }
            // The last sixteen bytes use the secret from byte 119 on, which is 3 + 8 * 14.5.
            long low = word(b, at + length - 16) ^ word(SECRET, 119) + SEED;
            long high = word(b, at + length - 8) ^ word(SECRET, 127) - SEED;
            return avalanche(h + fold(low, high));
        }

        private static long to1024(byte[] b, int at, int length) {
            long a0 = P32_3;
            long a1 = P64_1;
            long a2 = P64_2;
            long a3 = P64_3;
            long a4 = P64_4;
            long a5 = P32_2;
            long a6 = P64_5;
            long a7 = P32_1;
            int stripes = (length - 1) / 64;
            for (int n = 0; n <= stripes; n++) {
                boolean last = n == stripes;
                int from = last ? at + length - 64 : at + 64 * n;
                int secret = last ? 121 : 8 * n;
                long d0 = word(b, from);
                long d1 = word(b, from + 8);
                long d2 = word(b, from + 16);
                long d3 = word(b, from + 24);
                long d4 = word(b, from + 32);
                long d5 = word(b, from + 40);
                long d6 = word(b, from + 48);
                long d7 = word(b, from + 56);
                a0 += d1 + halves(d0 ^ word(SEEDED, secret));
                a1 += d0 + halves(d1 ^ word(SEEDED, secret + 8));
                a2 += d3 + halves(d2 ^ word(SEEDED, secret + 16));
                a3 += d2 + halves(d3 ^ word(SEEDED, secret + 24));
                a4 += d5 + halves(d4 ^ word(SEEDED, secret + 32));
                a5 += d4 + halves(d5 ^ word(SEEDED, secret + 40));
                a6 += d7 + halves(d6 ^ word(SEEDED, secret + 48));
                a7 += d6 + halves(d7 ^ word(SEEDED, secret + 56));
            }
            long h = length * P64_1;
            h += fold(a0 ^ word(SEEDED, 11), a1 ^ word(SEEDED, 19));
            h += fold(a2 ^ word(SEEDED, 27), a3 ^ word(SEEDED, 35));
            h += fold(a4 ^ word(SEEDED, 43), a5 ^ word(SEEDED, 51));
            h += fold(a6 ^ word(SEEDED, 59), a7 ^ word(SEEDED, 67));
            return avalanche(h);
        }

        private static long mix(byte[] b, int at, long[] secret, int i) {
            return fold(word(b, at) ^ secret[i], word(b, at + 8) ^ secret[i + 1]);
        }

        private static long halves(long x) {
            return (x & 0xffffffffL) * (x >>> 32);
        }

        private static long fold(long a, long b) {
            return a * b ^ unsignedHigh(a, b);
        }

        private static long avalanche(long h) {
            h = (h ^ h >>> 37) * 0x165667919E3779F9L;
            return h ^ h >>> 32;
        }

        private static long word(byte[] b, int at) {
            return (long) LONGS.get(b, at);
        }

        private static byte[] bytesOf(String hex) {
            byte[] bytes = new byte[hex.length() / 2];
            for (int i = 0; i < bytes.length; i++) {
                bytes[i] = (byte) Integer.parseInt(hex.substring(2 * i, 2 * i + 2), 16);
            }
            return bytes;
        }
    }

    /** MurmurHash3 x64 128 (Austin Appleby, 2011) with seed 0. */
    static final class Murmur3 {
        private static final long C1 = 0x87c37b91114253d5L;
        private static final long C2 = 0x4cf5ad432745937fL;

        private Murmur3() {}

        /** Puts the two halves into {@code hash[i]} and {@code hash[i + 1]}. */
        static void of(byte[] b, int at, int length, long[] hash, int i) {
            long h1 = 0;
            long h2 = 0;
            int end = at + (length & -16);
            for (int block = at; block < end; block += 16) {
                h1 ^= mix1((long) LONGS.get(b, block));
                h1 = (Long.rotateLeft(h1, 27) + h2) * 5 + 0x52dce729;
                h2 ^= mix2((long) LONGS.get(b, block + 8));
                h2 = (Long.rotateLeft(h2, 31) + h1) * 5 + 0x38495ab5;
            }
            long k1 = 0;
            long k2 = 0;
            for (int j = (length & 15) - 1; j >= 8; j--) {
                k2 = k2 << 8 | b[end + j] & 255;
            }
            for (int j = Math.min(length & 15, 8) - 1; j >= 0; j--) {
                k1 = k1 << 8 | b[end + j] & 255;
            }
            // Mixing a zero gives zero, so there is no need to check whether there are so many bytes.
            h1 ^= mix1(k1) ^ length;
            h2 ^= mix2(k2) ^ length;
            h1 += h2;
            h2 += h1;
            h1 = finish(h1);
            h2 = finish(h2);
            h1 += h2;
            hash[i] = h1;
            hash[i + 1] = h2 + h1;
        }

        private static long mix1(long k) {
            return Long.rotateLeft(k * C1, 31) * C2;
        }

        private static long mix2(long k) {
            return Long.rotateLeft(k * C2, 33) * C1;
        }

        private static long finish(long k) {
            k = (k ^ k >>> 33) * 0xff51afd7ed558ccdL;
            k = (k ^ k >>> 33) * 0xc4ceb9fe1a85ec53L;
            return k ^ k >>> 33;
        }
    }

    /** BLAKE3 of a stream of bytes, 32 bytes long. From the specification's reference, unkeyed. */
    static final class Blake3 {
        private static final int[] IV = {
            0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
            0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
        };
        private static final int CHUNK_START = 1;
        private static final int CHUNK_END = 2;
        private static final int PARENT = 4;
        private static final int ROOT = 8;
        private static final int BLOCK_BYTES = 64;
        private static final int CHUNK_BLOCKS = 16;

        private final byte[] block = new byte[BLOCK_BYTES];
        private int blockBytes;
        private int blocksInChunk;
        private long chunks;
        private final int[] cv = IV.clone();
        /** The roots of complete subtrees, the largest first: one for each set bit of `chunks`. */
        private final int[][] subtrees = new int[64][];
        private int subtreeCount;
        private final byte[] parent = new byte[BLOCK_BYTES];

        void update(byte[] bytes, int at, int length) {
            int end = at + length;
            while (at < end) {
                // The last block of all is compressed otherwise: each waits for a byte after it.
                if (blockBytes == BLOCK_BYTES) {
                    addBlock(block, 0);
                    blockBytes = 0;
                }
                if (blockBytes == 0 && end - at > BLOCK_BYTES) {
                    addBlock(bytes, at);
                    at += BLOCK_BYTES;
                } else {
                    int part = Math.min(BLOCK_BYTES - blockBytes, end - at);
                    System.arraycopy(bytes, at, block, blockBytes, part);
                    blockBytes += part;
                    at += part;
                }
            }
        }

        byte[] finish() {
            Arrays.fill(block, blockBytes, BLOCK_BYTES, (byte) 0);
            int flags = (blocksInChunk == 0 ? CHUNK_START : 0) | CHUNK_END;
            int root = subtreeCount == 0 ? ROOT : 0;
            compress(cv, block, 0, chunks, blockBytes, flags | root, cv);
            while (subtreeCount > 0) {
                subtreeCount--;
                join(subtrees[subtreeCount], cv, subtreeCount == 0 ? ROOT : 0);
            }
            byte[] digest = new byte[32];
            for (int i = 0; i < cv.length; i++) {
                INTS.set(digest, 4 * i, cv[i]);
            }
            return digest;
        }

        private void addBlock(byte[] bytes, int at) {
            boolean last = blocksInChunk == CHUNK_BLOCKS - 1;
            int flags = (blocksInChunk == 0 ? CHUNK_START : 0) | (last ? CHUNK_END : 0);
            compress(cv, bytes, at, chunks, BLOCK_BYTES, flags, cv);
            blocksInChunk++;
            if (!last) {
                return;
            }
            chunks++;
            for (long done = chunks; (done & 1) == 0; done >>= 1) {
                subtreeCount--;
                join(subtrees[subtreeCount], cv, 0);
            }
            subtrees[subtreeCount] = cv.clone();
            subtreeCount++;
            System.arraycopy(IV, 0, cv, 0, IV.length);
            blocksInChunk = 0;
        }

        /** Makes {@code right} the parent of both. */
        private void join(int[] left, int[] right, int flags) {
            for (int i = 0; i < 8; i++) {
                INTS.set(parent, 4 * i, left[i]);
                INTS.set(parent, 32 + 4 * i, right[i]);
            }
            compress(IV, parent, 0, 0, BLOCK_BYTES, PARENT | flags, right);
        }

        private static void compress(
                int[] cv, byte[] b, int at, long counter, int length, int flags, int[] out) {
            int m0 = word(b, at + 0);
            int m1 = word(b, at + 4);
            int m2 = word(b, at + 8);
            int m3 = word(b, at + 12);
            int m4 = word(b, at + 16);
            int m5 = word(b, at + 20);
            int m6 = word(b, at + 24);
            int m7 = word(b, at + 28);
            int m8 = word(b, at + 32);
            int m9 = word(b, at + 36);
            int m10 = word(b, at + 40);
            int m11 = word(b, at + 44);
            int m12 = word(b, at + 48);
            int m13 = word(b, at + 52);
            int m14 = word(b, at + 56);
            int m15 = word(b, at + 60);
            int v0 = cv[0];
            int v1 = cv[1];
            int v2 = cv[2];
            int v3 = cv[3];
            int v4 = cv[4];
            int v5 = cv[5];
            int v6 = cv[6];
            int v7 = cv[7];
            int v8 = IV[0];
            int v9 = IV[1];
            int v10 = IV[2];
            int v11 = IV[3];
            int v12 = (int) counter;
            int v13 = (int) (counter >>> 32);
            int v14 = length;
            int v15 = flags;
            for (int round = 0; ; round++) {
                v0 += v4 + m0;
                v12 = Integer.rotateRight(v12 ^ v0, 16);
                v8 += v12;
                v4 = Integer.rotateRight(v4 ^ v8, 12);
                v0 += v4 + m1;
                v12 = Integer.rotateRight(v12 ^ v0, 8);
                v8 += v12;
                v4 = Integer.rotateRight(v4 ^ v8, 7);
                v1 += v5 + m2;
                v13 = Integer.rotateRight(v13 ^ v1, 16);
                v9 += v13;
                v5 = Integer.rotateRight(v5 ^ v9, 12);
                v1 += v5 + m3;
                v13 = Integer.rotateRight(v13 ^ v1, 8);
                v9 += v13;
                v5 = Integer.rotateRight(v5 ^ v9, 7);
                v2 += v6 + m4;
                v14 = Integer.rotateRight(v14 ^ v2, 16);
                v10 += v14;
                v6 = Integer.rotateRight(v6 ^ v10, 12);
                v2 += v6 + m5;
                v14 = Integer.rotateRight(v14 ^ v2, 8);
                v10 += v14;
                v6 = Integer.rotateRight(v6 ^ v10, 7);
                v3 += v7 + m6;
                v15 = Integer.rotateRight(v15 ^ v3, 16);
                v11 += v15;
                v7 = Integer.rotateRight(v7 ^ v11, 12);
                v3 += v7 + m7;
                v15 = Integer.rotateRight(v15 ^ v3, 8);
                v11 += v15;
                v7 = Integer.rotateRight(v7 ^ v11, 7);
                v0 += v5 + m8;
                v15 = Integer.rotateRight(v15 ^ v0, 16);
                v10 += v15;
                v5 = Integer.rotateRight(v5 ^ v10, 12);
                v0 += v5 + m9;
                v15 = Integer.rotateRight(v15 ^ v0, 8);
                v10 += v15;
                v5 = Integer.rotateRight(v5 ^ v10, 7);
                v1 += v6 + m10;
                v12 = Integer.rotateRight(v12 ^ v1, 16);
                v11 += v12;
                v6 = Integer.rotateRight(v6 ^ v11, 12);
                v1 += v6 + m11;
                v12 = Integer.rotateRight(v12 ^ v1, 8);
                v11 += v12;
                v6 = Integer.rotateRight(v6 ^ v11, 7);
                v2 += v7 + m12;
                v13 = Integer.rotateRight(v13 ^ v2, 16);
                v8 += v13;
                v7 = Integer.rotateRight(v7 ^ v8, 12);
                v2 += v7 + m13;
                v13 = Integer.rotateRight(v13 ^ v2, 8);
                v8 += v13;
                v7 = Integer.rotateRight(v7 ^ v8, 7);
                v3 += v4 + m14;
                v14 = Integer.rotateRight(v14 ^ v3, 16);
                v9 += v14;
                v4 = Integer.rotateRight(v4 ^ v9, 12);
                v3 += v4 + m15;
                v14 = Integer.rotateRight(v14 ^ v3, 8);
                v9 += v14;
                v4 = Integer.rotateRight(v4 ^ v9, 7);
                if (round == 6) {
                    break;
                }
                // The message words change places, in two cycles.
                int moved0 = m0;
                m0 = m2;
                m2 = m3;
                m3 = m10;
                m10 = m12;
                m12 = m9;
                m9 = m11;
                m11 = m5;
                m5 = moved0;
                int moved1 = m1;
                m1 = m6;
                m6 = m4;
                m4 = m7;
                m7 = m13;
                m13 = m14;
                m14 = m15;
                m15 = m8;
                m8 = moved1;
            }
            out[0] = v0 ^ v8;
            out[1] = v1 ^ v9;
            out[2] = v2 ^ v10;
            out[3] = v3 ^ v11;
            out[4] = v4 ^ v12;
            out[5] = v5 ^ v13;
            out[6] = v6 ^ v14;
            out[7] = v7 ^ v15;
        }

        private static int word(byte[] b, int at) {
            return (int) INTS.get(b, at);
        }
    }
}
