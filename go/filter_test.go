package bloomsday

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zeebo/blake3"
)

// The blobs that the repository keeps for every later version, of both layouts that this package reads.
func golden(t testing.TB) []string {
	var files []string
	for _, layout := range []string{"blocked", "guava"} {
		found, err := filepath.Glob("../tests/golden/v*-" + layout + ".bloom")
		if err != nil || len(found) < 2 {
			t.Fatalf("the golden files are not there: %v, %v", found, err)
		}
		files = append(files, found...)
	}
	return files
}

func read(t testing.TB, path string) []byte {
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func open(t testing.TB, path string) *Filter {
	filter, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return filter
}

func TestGoldenFilesHaveTheirIDs(t *testing.T) {
	for _, path := range golden(t) {
		filter := open(t, path)
		header := filter.Header()
		if header.Filter != "rt" || header.Day != "2024-02-29" || header.IDs != 400 {
			t.Errorf("%s: %+v", path, header)
		}
		hits := 0
		for i := 0; i < 100_400; i++ {
			if filter.ContainsString(fmt.Sprintf("0123456789abcdef%016x", i)) {
				hits++
			}
		}
		if hits < 10 || hits > 8_000 {
			t.Errorf("%s: %d hits", path, hits)
		}
	}
}

func TestWhatThisPackageDoesNotReadIsNamed(t *testing.T) {
	for name, why := range map[string]string{
		"v1-spark1.bloom": "`spark1`",
		"v1-spark2.bloom": "`spark2`",
		"v1-url.bloom":    "URLs",
	} {
		var unsound *UnsoundError
		_, err := Open("../tests/golden/" + name)
		if !errors.As(err, &unsound) || !strings.Contains(unsound.Why, why) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// tests/tests/clients/go.rs publishes blobs with the program and asks it for its answers. By itself, `go test` skips this.
func TestAnswersAreThoseOfTheProgram(t *testing.T) {
	folder := os.Getenv("BLOOMSDAY_TEST_BLOBS")
	if folder == "" {
		t.Skip("BLOOMSDAY_TEST_BLOBS names no folder: tests/run.sh runs this")
	}
	places, err := os.ReadDir(folder)
	if err != nil || len(places) < 4 {
		t.Fatal(places, err)
	}
	for _, place := range places {
		if strings.HasPrefix(place.Name(), "spark") {
			continue
		}
		at := filepath.Join(folder, place.Name())
		filter := open(t, filepath.Join(at, "rt.bloom"))
		ids := bytes.Split(bytes.TrimSuffix(read(t, filepath.Join(at, "ids")), []byte("\n")), []byte("\n"))
		want := strings.Fields(string(read(t, filepath.Join(at, "answers"))))
		if len(want) != len(ids) || len(ids) < 5_000 {
			t.Fatalf("%s: %d answers for %d IDs", at, len(want), len(ids))
		}
		offsets := []int32{0}
		for _, id := range ids {
			offsets = append(offsets, offsets[len(offsets)-1]+int32(len(id)))
		}
		batch := make([]bool, len(ids))
		if err := filter.ContainsBatch(bytes.Join(ids, nil), offsets, batch); err != nil {
			t.Fatal(err)
		}
		texts, ofTexts := make([]string, len(ids)), make([]bool, len(ids))
		for i, id := range ids {
			texts[i] = string(id)
		}
		if err := filter.ContainsStrings(texts, ofTexts); err != nil {
			t.Fatal(err)
		}
		for i, id := range ids {
			expected := want[i] == "1"
			single := filter.Contains(id) == expected && filter.ContainsString(texts[i]) == expected
			if !single || batch[i] != expected || ofTexts[i] != expected {
				t.Errorf("%s: %q is not %s", at, id, want[i])
			}
		}
		var inspected map[string]any
		if err := json.Unmarshal(read(t, filepath.Join(at, "inspect.json")), &inspected); err != nil {
			t.Fatal(err)
		}
		h := filter.Header()
		ours := map[string]any{"filter": h.Filter, "day": h.Day, "digest": h.Digest, "layout": h.Layout,
			"ids": float64(h.IDs), "bytes": float64(h.Bytes), "bits": float64(h.Bits), "probes": float64(h.Probes),
			"fpp_target": h.FPPTarget, "fpp_measured": h.FPPMeasured, "fill": float64(h.OnesSet) / float64(h.Bits)}
		for name, value := range ours {
			if inspected[name] != value {
				t.Errorf("%s: %s is %v, not %v", at, name, value, inspected[name])
			}
		}
	}
}

func TestEveryDamageIsRefused(t *testing.T) {
	for _, path := range golden(t) {
		blob := read(t, path)
		refused := func(damaged []byte, what string, at int) {
			var unsound *UnsoundError
			if _, err := Parse(damaged); !errors.As(err, &unsound) || unsound.Why == "" {
				t.Fatalf("%s with %s at %d: %v", path, what, at, err)
			}
		}
		for at := range blob {
			damaged := append([]byte(nil), blob...)
			damaged[at] ^= 1 << (at % 8)
			// Version 0 is also a version, with another digest.
			refused(damaged, "a flipped bit", at)
		}
		for size := 0; size < len(blob); size += 7 {
			refused(blob[:size], "its end", size)
		}
		refused(append(append([]byte(nil), blob...), 0), "one byte more", len(blob))
	}
}

// A longer run: go test -run XXX -fuzz FuzzParse -fuzzminimizetime 10x
func FuzzParse(f *testing.F) {
	for _, path := range golden(f) {
		f.Add(read(f, path))
	}
	f.Fuzz(func(t *testing.T, blob []byte) {
		// With the digest that fits, so that what is behind its check is reached.
		if at := len(blob) - digestBytes; at >= 0 {
			digest := blake3.Sum256(blob[:at])
			blob = append(blob[:at:at], digest[:]...)
		}
		if filter, err := Parse(blob); err == nil {
			filter.ContainsString("x")
		}
	})
}

func TestABatchThatCannotBeIsAnError(t *testing.T) {
	filter := open(t, golden(t)[0])
	data := []byte("abcdef")
	for _, offsets := range [][]int32{{0, 3}, {0, 3, 2, 6}, {-1, 2, 3, 6}, {0, 1, 2, 7}, {}} {
		answers := []bool{false, false, false}
		if err := filter.ContainsBatch(data, offsets, answers); err == nil {
			t.Errorf("%v", offsets)
		}
	}
	if err := filter.ContainsBatch(nil, []int32{0}, nil); err != nil {
		t.Error(err)
	}
}

func TestStringsAnswerAsOneAtATime(t *testing.T) {
	for _, path := range golden(t) {
		filter := open(t, path)
		for _, n := range []int{0, 1, 63, 64, 65, 1000} {
			ids, answers := make([]string, n), make([]bool, n)
			for i := range ids {
				ids[i] = fmt.Sprintf("0123456789abcdef%016x", i)
				// What was in the answers before does not matter.
				answers[i] = i%2 == 0
			}
			if err := filter.ContainsStrings(ids, answers); err != nil {
				t.Fatal(err)
			}
			for i, id := range ids {
				if answers[i] != filter.ContainsString(id) {
					t.Errorf("%s: ID %d of %d", path, i, n)
				}
			}
		}
		// Where every bit is set, only what is no ID is a miss.
		full := Filter{filter.header, bytes.Repeat([]byte{0xff}, len(filter.body))}
		long := strings.Repeat("x", MaxIDBytes+1)
		ids, answers := []string{"", "a", long, long[1:]}, make([]bool, 4)
		if err := full.ContainsStrings(ids, answers); err != nil || fmt.Sprint(answers) != "[false true false true]" {
			t.Error(path, err, answers)
		}
		offsets := []int32{0, 0, 1, MaxIDBytes + 2, 2*MaxIDBytes + 2}
		err := full.ContainsBatch([]byte(strings.Join(ids, "")), offsets, answers)
		if err != nil || fmt.Sprint(answers) != "[false true false true]" {
			t.Error(path, err, answers)
		}
		for _, answers := range []int{0, 1, 3} {
			err := filter.ContainsStrings([]string{"a", "b"}, make([]bool, answers))
			if err == nil || !strings.Contains(err.Error(), "2 IDs") {
				t.Error(answers, err)
			}
		}
	}
}

// As `bloomsday follow` replaces a file.
func replace(t testing.TB, path string, blob []byte) {
	if err := os.WriteFile(path+".next", blob, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".next", path); err != nil {
		t.Fatal(err)
	}
}

var _ io.Closer = (*Watched)(nil)

func TestADamagedFileIsReadAgainOnlyWhenItChangedOrByReload(t *testing.T) {
	good := read(t, golden(t)[0])
	damaged := append([]byte(nil), good...)
	damaged[len(damaged)-100] ^= 1
	path := filepath.Join(t.TempDir(), "rt.bloom")
	replace(t, path, good)
	watched, err := Watch(path, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	defer watched.Close()
	first := watched.Filter()
	var unsound *UnsoundError
	stays := func(swapped bool, err error) {
		t.Helper()
		isSame := !swapped && watched.Filter() == first
		if !isSame || !errors.As(err, &unsound) || !errors.As(watched.LastError(), &unsound) {
			t.Fatal(swapped, err, watched.LastError())
		}
	}
	replace(t, path, damaged)
	stays(watched.check(false))
	// Sound bytes in what seems to be the same file: whoever reads them has a new filter.
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, before.ModTime(), before.ModTime()); err != nil {
		t.Fatal(err)
	}
	stays(watched.check(false))
	// Another error in between is not the one that is reported afterwards.
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	if _, err := watched.check(false); !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	stays(watched.check(false))
	if swapped, err := watched.Reload(); !swapped || err != nil || watched.LastError() != nil {
		t.Fatal("Reload did not read it again", err)
	}
	if swapped, err := watched.check(false); swapped || err != nil {
		t.Fatal("nothing has changed", err)
	}
	replace(t, path, damaged)
	if _, err := watched.check(false); !errors.As(err, &unsound) {
		t.Fatal(err)
	}
	// Sound bytes with the same stamp are read an hour later.
	if before, err = os.Stat(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, before.ModTime(), before.ModTime()); err != nil {
		t.Fatal(err)
	}
	if swapped, err := watched.check(false); swapped || !errors.As(err, &unsound) {
		t.Fatal("it was read again at once", err)
	}
	watched.again = time.Now().Add(-time.Second)
	if swapped, err := watched.check(false); !swapped || err != nil {
		t.Fatal("it was not read again", err)
	}
	replace(t, path, damaged)
	if _, err := watched.check(false); !errors.As(err, &unsound) {
		t.Fatal(err)
	}
	replace(t, path, good)
	if swapped, err := watched.check(false); !swapped || err != nil {
		t.Fatal("another file is not read", err)
	}
}

func TestAFileOfAnotherFilterIsRefusedWhenANameIsExpected(t *testing.T) {
	rt := read(t, golden(t)[0])
	other := append([]byte(nil), rt...)
	other[14+8] = 'x'
	digest := blake3.Sum256(other[:len(other)-digestBytes])
	copy(other[len(other)-digestBytes:], digest[:])
	path := filepath.Join(t.TempDir(), "rt.bloom")
	refused := func(_ any, err error) {
		t.Helper()
		var unsound *UnsoundError
		says := `expected the filter "rt", but it is "xt"`
		if !errors.As(err, &unsound) || unsound.Path != path || unsound.Why != says {
			t.Fatal(err)
		}
	}
	replace(t, path, other)
	refused(WatchFilter(path, "rt", time.Hour))
	replace(t, path, rt)
	watched, err := WatchFilter(path, "rt", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	defer watched.Close()
	first := watched.Filter()
	replace(t, path, other)
	refused(watched.Reload())
	if watched.Filter() != first {
		t.Fatal("it was swapped in")
	}
	if any, err := Watch(path, time.Hour); err != nil || any.Close() != nil {
		t.Fatal("without a name, any filter will do", err)
	}
	for _, name := range []string{"", "RT"} {
		if _, err := WatchFilter(path, name, time.Hour); err == nil {
			t.Errorf("%q is taken for a name", name)
		}
	}
}

func TestAWatchedFileIsSwappedAndDamageChangesNothing(t *testing.T) {
	files := golden(t)
	path := filepath.Join(t.TempDir(), "rt.bloom")
	if _, err := Watch(path, time.Hour); !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	replace(t, path, read(t, files[0]))
	if _, err := Watch(path, 0); err == nil {
		t.Fatal("an interval of 0")
	}
	watched, err := Watch(path, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	defer watched.Close()

	stop := make(chan struct{})
	var lookups sync.WaitGroup
	for i := 0; i < 4; i++ {
		lookups.Add(1)
		go func() {
			defer lookups.Done()
			for {
				select {
				case <-stop:
					return
				default:
					watched.Filter().ContainsString("0123456789abcdef0000000000000000")
				}
			}
		}()
	}
	for round := 0; round < 20; round++ {
		blob := read(t, files[round%len(files)])
		replace(t, path, blob)
		if swapped, err := watched.Reload(); !swapped || err != nil {
			t.Fatal(round, swapped, err)
		}
		now := watched.Filter()
		answers := make([]bool, 1)
		id := "0123456789abcdef0000000000000000"
		if err := watched.ContainsStrings([]string{id}, answers); err != nil || answers[0] != now.ContainsString(id) {
			t.Fatal(err, answers)
		}
		if now.Header().Bytes != uint64(len(blob)) {
			t.Fatal(now.Header())
		}
		replace(t, path, blob[:len(blob)-1])
		if _, err := watched.Reload(); err == nil || watched.LastError() == nil || watched.Filter() != now {
			t.Fatal("damage is not an error, or was swapped in", err)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := watched.Reload(); !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	close(stop)
	lookups.Wait()
	for i := 0; i < 2; i++ {
		if err := watched.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// What is too large for the memory would end the program, which nothing can catch.
func TestAFileOfAnotherSizeIsRefusedBeforeItIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rt.bloom")
	blob, err := os.ReadFile("../tests/golden/v1-blocked.bloom")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, blob, 0o600); err != nil {
		t.Fatal(err)
	}
	// Only as long as that: there is no such disk and no such memory.
	if err := os.Truncate(path, 1<<42); err != nil {
		t.Skip("this file system has no files of 4 TiB: ", err)
	}
	for name, why := range map[string]string{path: "expected a body of", "/dev/zero": "not a regular file", t.TempDir(): "not a regular file"} {
		_, err := Open(name)
		var unsound *UnsoundError
		if !errors.As(err, &unsound) || !strings.Contains(err.Error(), why) || unsound.Path != name {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func ExampleOpen() {
	filter, err := Open("../tests/golden/v1-blocked.bloom")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(filter.Header().IDs, filter.ContainsString("0123456789abcdef0000000000000000"))
	// Output: 400 true
}

func BenchmarkContains(b *testing.B) {
	filter := open(b, "../tests/golden/v1-blocked.bloom")
	id := []byte("0123456789abcdef0000000000000000")
	b.ReportAllocs()
	for i := 0; i < b.N; i++ {
		filter.Contains(id)
	}
}

func BenchmarkContainsBatch(b *testing.B) {
	filter := open(b, "../tests/golden/v1-blocked.bloom")
	const n = 1024
	data, offsets := []byte{}, []int32{0}
	for i := 0; i < n; i++ {
		data = append(data, fmt.Sprintf("0123456789abcdef%016x", i)...)
		offsets = append(offsets, int32(len(data)))
	}
	answers := make([]bool, n)
	b.ReportAllocs()
	for i := 0; i < b.N; i += n {
		if err := filter.ContainsBatch(data, offsets, answers); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkContainsStrings(b *testing.B) {
	filter := open(b, "../tests/golden/v1-blocked.bloom")
	const n = 1024
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("0123456789abcdef%016x", i)
	}
	answers := make([]bool, n)
	b.ReportAllocs()
	for i := 0; i < b.N; i += n {
		if err := filter.ContainsStrings(ids, answers); err != nil {
			b.Fatal(err)
		}
	}
}
