package bloomsday

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// The blobs that the repository keeps for every later version.
func golden(t testing.TB) []string {
	files, err := filepath.Glob("../tests/golden/v*-*.bloom")
	if err != nil || len(files) < 4 {
		t.Fatalf("the golden files are not there: %v, %v", files, err)
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

// tests/tests/go.rs publishes blobs with the program and asks it for its answers. By itself, `go test` skips this.
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
		for i, id := range ids {
			expected := want[i] == "1"
			if filter.Contains(id) != expected || filter.ContainsString(string(id)) != expected || batch[i] != expected {
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

func FuzzParse(f *testing.F) {
	for _, path := range golden(f) {
		f.Add(read(f, path))
	}
	f.Fuzz(func(t *testing.T, blob []byte) {
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

func TestAWatchedFileIsSwappedAndDamageChangesNothing(t *testing.T) {
	files := golden(t)
	path := filepath.Join(t.TempDir(), "rt.bloom")
	replace := func(blob []byte) {
		if err := os.WriteFile(path+".next", blob, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".next", path); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Watch(path, time.Hour); !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	replace(read(t, files[0]))
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
		replace(blob)
		if swapped, err := watched.Reload(); !swapped || err != nil {
			t.Fatal(round, swapped, err)
		}
		now := watched.Filter()
		if now.Header().Bytes != uint64(len(blob)) {
			t.Fatal(now.Header())
		}
		replace(blob[:len(blob)-1])
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
	watched.Close()
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
