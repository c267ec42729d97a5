// Package bloomsday looks IDs up in blobs that `bloomsday build` published: filters that are rebuilt every day.
//
// It is written in Go alone: no cgo, and no library to install. Open reads and checks a file; Watch follows one that
// `bloomsday follow` replaces every day.
//
//	seen, err := bloomsday.Open("rt.bloom")
//	if err != nil { … }
//	if seen.ContainsString("0f8fad5bd9cb469fa16570867728950e") { … }
package bloomsday

import (
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"

	"github.com/twmb/murmur3"
	"github.com/zeebo/xxh3"
)

// MaxIDBytes is the length of the longest ID. An ID that is longer, or empty, is in no filter.
const MaxIDBytes = 1024

// A Filter is an immutable set of IDs. Any number of goroutines may use it.
type Filter struct {
	header Header
	// The bits: blocks of 64 bytes, or Guava's words of 8.
	body []byte
}

// Open reads a blob file and checks every byte of it. It needs as much memory as the file has bytes.
//
// The error is an *UnsoundError for a file that it cannot look up in, or that of the file system.
func Open(path string) (*Filter, error) {
	blob, err := readBlob(path)
	var filter *Filter
	if err == nil {
		filter, err = Parse(blob)
	}
	var refused *UnsoundError
	if errors.As(err, &refused) {
		refused.Path = path
	}
	return filter, err
}

// Reads a file, if it is as long as its record says: memory for a wrong file may be more than there is, and a program
// without memory ends.
func readBlob(path string) ([]byte, error) {
	// Before it is opened: opening a pipe waits for a writer.
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, unsound("it is not a regular file")
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	// Of the file that is read: another one may have its name by now.
	if info, err = file.Stat(); err != nil {
		return nil, err
	}
	size, headBytes := info.Size(), int64(maxHeadBytes)
	if size < headBytes {
		headBytes = size
	}
	head := make([]byte, headBytes)
	if _, err := io.ReadFull(file, head); err != nil {
		return nil, withPath(path, err)
	}
	if err := checkSize(head, uint64(size)); err != nil {
		return nil, err
	}
	blob := make([]byte, size)
	if _, err := io.ReadFull(file, blob[copy(blob, head):]); err != nil {
		return nil, withPath(path, err)
	}
	return blob, nil
}

// The end of a file says nothing of which; other errors do.
func withPath(path string, err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return &os.PathError{Op: "read", Path: path, Err: err}
	}
	return err
}

// Parse checks the bytes of a blob, and looks IDs up in them: they must not change afterwards.
func Parse(blob []byte) (*Filter, error) {
	header, body, err := parse(blob)
	if err != nil {
		return nil, err
	}
	return &Filter{header, body}, nil
}

// Header returns what the blob says about itself.
func (f *Filter) Header() Header { return f.header }

// Contains returns whether an ID may be in the set; if not, it is certainly not in it.
func (f *Filter) Contains(id []byte) bool {
	if len(id) == 0 || len(id) > MaxIDBytes {
		return false
	}
	if f.header.layout == guava {
		return f.inWords(murmur3.Sum128(id))
	}
	return f.inBlock(xxh3.HashSeed(id, xxh3Seed))
}

// ContainsString is Contains for the bytes of a string, without a copy.
func (f *Filter) ContainsString(id string) bool {
	if len(id) == 0 || len(id) > MaxIDBytes {
		return false
	}
	if f.header.layout == guava {
		return f.inWords(murmur3.StringSum128(id))
	}
	return f.inBlock(xxh3.HashStringSeed(id, xxh3Seed))
}

// How many IDs of a batch have their cache lines fetched before the first is tested.
const ahead = 64

// ContainsBatch looks up many IDs: faster than one at a time in a filter that is larger than the cache. ID i has the
// bytes from offsets[i] to offsets[i+1], as in an Arrow column of strings; answers[i] is what Contains returns for it.
//
// It returns an error, and no answers, when there are not len(answers)+1 offsets in order within the bytes.
func (f *Filter) ContainsBatch(bytes []byte, offsets []int32, answers []bool) error {
	if len(offsets) != len(answers)+1 {
		return fmt.Errorf("%d answers need %d offsets, not %d", len(answers), len(answers)+1, len(offsets))
	}
	last := int32(0)
	for i, offset := range offsets {
		if offset < last || int64(offset) > int64(len(bytes)) {
			return fmt.Errorf("offset %d is %d: not in order within %d bytes", i, offset, len(bytes))
		}
		last = offset
	}
	id := func(i int) []byte { return bytes[offsets[i]:offsets[i+1]] }
	if f.header.layout == guava {
		for i := range answers {
			answers[i] = f.Contains(id(i))
		}
		return nil
	}
	var hashes [ahead]uint64
	for start := 0; start < len(answers); start += ahead {
		chunk := first(ahead, answers[start:])
		for i := range chunk {
			id := id(start + i)
			hashes[i] = xxh3.HashSeed(id, xxh3Seed)
			chunk[i] = len(id) > 0 && len(id) <= MaxIDBytes
		}
		f.testBlocks(hashes[:len(chunk)], chunk)
	}
	return nil
}

// ContainsStrings is ContainsBatch for strings, without a copy: answers[i] is what ContainsString returns for ids[i].
//
// It returns an error, and no answers, when there are not as many answers as IDs.
func (f *Filter) ContainsStrings(ids []string, answers []bool) error {
	if len(ids) != len(answers) {
		return fmt.Errorf("%d IDs need as many answers, not %d", len(ids), len(answers))
	}
	if f.header.layout == guava {
		for i, id := range ids {
			answers[i] = f.ContainsString(id)
		}
		return nil
	}
	var hashes [ahead]uint64
	for start := 0; start < len(answers); start += ahead {
		chunk := first(ahead, answers[start:])
		for i := range chunk {
			id := ids[start+i]
			hashes[i] = xxh3.HashStringSeed(id, xxh3Seed)
			chunk[i] = len(id) > 0 && len(id) <= MaxIDBytes
		}
		f.testBlocks(hashes[:len(chunk)], chunk)
	}
	return nil
}

// The first n of some answers, or all if there are fewer.
func first(n int, answers []bool) []bool {
	if len(answers) > n {
		return answers[:n]
	}
	return answers
}

// Turns answers to false where a bit of the ID's block is not set. Fetches all blocks before it tests the first.
func (f *Filter) testBlocks(hashes []uint64, answers []bool) {
	touched := byte(0)
	for _, hash := range hashes {
		touched ^= f.body[f.block(hash)]
	}
	for i, hash := range hashes {
		answers[i] = answers[i] && f.inBlock(hash)
	}
	sink(touched)
}

// Keeps the compiler from dropping the loads that fetch cache lines.
//
//go:noinline
func sink(byte) {}

// Where the block of a hash begins in the body.
func (f *Filter) block(hash uint64) uint64 {
	block, _ := bits.Mul64(hash, f.header.units)
	return 64 * block
}

func (f *Filter) inBlock(hash uint64) bool {
	at := f.block(hash)
	block := f.body[at : at+64 : at+64]
	all := byte(1)
	for _, salt := range salts[:f.header.Probes] {
		bit := (uint32(hash) * salt) >> 23
		all &= block[bit>>3] >> (bit & 7)
	}
	return all == 1
}

func (f *Filter) inWords(h1, h2 uint64) bool {
	c := h1
	for i := uint32(0); i < f.header.Probes; i++ {
		if !f.bit((c & 0x7fffffffffffffff) % f.header.Bits) {
			return false
		}
		c += h2
	}
	return true
}

// A bit of Guava's words, which are big-endian.
func (f *Filter) bit(i uint64) bool {
	return f.body[i>>6<<3+7-i&63>>3]>>(i&7)&1 == 1
}
