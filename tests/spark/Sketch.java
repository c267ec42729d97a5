// A small program around Spark's own sketch.BloomFilter, to check our files against the real thing.
//
//   java -cp 'CLASSES:JARS/*' Sketch write V1|V2 N FPP < ids > filter
//   java -cp 'CLASSES:JARS/*' Sketch query FILE < ids      # 1 or 0 per line, as string and as binary
//
// IDs are the lines of standard input. JARS is the folder of jars that pyspark brings.

import java.io.BufferedOutputStream;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.util.sketch.BloomFilter;

public final class Sketch {
    public static void main(String[] args) throws IOException {
        if (args[0].equals("write")) {
            long n = Long.parseLong(args[2]);
            long bits = BloomFilter.optimalNumOfBits(n, Double.parseDouble(args[3]));
            BloomFilter filter = BloomFilter.create(BloomFilter.Version.valueOf(args[1]), n, bits, 0);
            for (byte[] id : lines()) {
                filter.putString(new String(id, StandardCharsets.UTF_8));
            }
            try (OutputStream out = new BufferedOutputStream(System.out, 1 << 16)) {
                filter.writeTo(out);
            }
            return;
        }
        BloomFilter filter;
        try (InputStream in = new FileInputStream(args[1])) {
            filter = BloomFilter.readFrom(in);
        }
        StringBuilder answers = new StringBuilder();
        for (byte[] id : lines()) {
            boolean found = filter.mightContainBinary(id);
            if (found != filter.mightContainString(new String(id, StandardCharsets.UTF_8))) {
                throw new IllegalStateException("a string and its bytes differ");
            }
            answers.append(found ? "1\n" : "0\n");
        }
        System.out.print(answers);
    }

    /** The lines of standard input: only LF ends one. */
    private static List<byte[]> lines() throws IOException {
        byte[] all = System.in.readAllBytes();
        List<byte[]> lines = new ArrayList<>();
        int start = 0;
        for (int i = 0; i < all.length; i++) {
            if (all[i] == '\n') {
                lines.add(Arrays.copyOfRange(all, start, i));
                start = i + 1;
            }
        }
        return lines;
    }
}
