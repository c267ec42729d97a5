package bloomsday

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"math/bits"
	"regexp"
	"time"

	"github.com/twmb/murmur3"
	"github.com/zeebo/blake3"
	"github.com/zeebo/xxh3"
)

// The format, byte for byte: docs/format.md.
const (
	magic          = "BLOOMSDY"
	xxh3Seed       = 0x426c6f6f6d736461
	fixedBytes     = 14 // magic, version, length of the record
	digestBytes    = 32
	maxRecordBytes = 65536
	maxHeadBytes   = fixedBytes + maxRecordBytes
	bodyAlignment  = 4096
	guavaHeadBytes = 6
	// Of a layout other than blocked.
	maxClassicProbes = 125
	testIDs          = 64
)

const (
	blocked = 0
	guava   = 1
	spark1  = 2
	spark2  = 3

	urls = 2
)

var salts = [16]uint32{
	0x243f6a89, 0x85a308d3, 0x13198a2f, 0x03707345, 0xa4093823, 0x299f31d1, 0x082efa99, 0xec4e6c89,
	0x452821e7, 0x38d01377, 0xbe5466cf, 0x34e90c6d, 0xc0ac29b7, 0xc97c50dd, 0x3f84d5b5, 0xb5470917,
}

var filterName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

// An UnsoundError says why a file is no blob that this package can look up in. Fetch a damaged one again; a newer
// version needs a newer reader.
type UnsoundError struct {
	// Path is the file, if there is one.
	Path string
	// Why is what was expected, and what there is.
	Why string
}

func (e *UnsoundError) Error() string {
	if e.Path == "" {
		return "this is no blob that this package can look up in: " + e.Why
	}
	return e.Path + " is no blob that this package can look up in: " + e.Why
}

// A Header is what a blob says about itself.
type Header struct {
	// Filter is the name of the filter, and Day the UTC date whose IDs it has, as YYYY-MM-DD.
	Filter, Day string
	// Digest is the BLAKE3 of the blob, in 64 hexadecimal digits.
	Digest string
	// Layout is "blocked" or "guava".
	Layout string
	// IDs is how many distinct IDs are in the filter, exactly, or estimated if IDsEstimated.
	IDs          uint64
	IDsEstimated bool
	// Bytes is the size of the blob; Bits that of the filter, of which OnesSet are set.
	Bytes, Bits, OnesSet uint64
	// Probes is how many bits a lookup tests.
	Probes uint32
	// FPPTarget is the false-positive probability that was asked for, FPPMeasured the one that was measured.
	FPPTarget, FPPMeasured float64
	// Format is the version of the format.
	Format uint16

	layout uint8
	units  uint64
}

type record struct {
	data []byte
	err  error
}

func (r *record) take(n uint64) []byte {
	if n > uint64(len(r.data)) {
		if r.err == nil {
			r.err = fmt.Errorf("its record ends within a field")
		}
		return make([]byte, 8)
	}
	taken := r.data[:n]
	r.data = r.data[n:]
	return taken
}

func (r *record) u8() uint8    { return r.take(1)[0] }
func (r *record) u16() uint16  { return binary.LittleEndian.Uint16(r.take(2)) }
func (r *record) u32() uint32  { return binary.LittleEndian.Uint32(r.take(4)) }
func (r *record) u64() uint64  { return binary.LittleEndian.Uint64(r.take(8)) }
func (r *record) f64() float64 { return math.Float64frombits(r.u64()) }
func (r *record) text() string { return string(r.take(r.u64())) }
func (r *record) list() []uint64 {
	n := r.u64()
	if n > uint64(len(r.data))/8 {
		r.take(math.MaxUint64)
		return nil
	}
	numbers := make([]uint64, n)
	for i := range numbers {
		numbers[i] = r.u64()
	}
	return numbers
}

func unsound(format string, values ...any) error {
	return &UnsoundError{Why: fmt.Sprintf(format, values...)}
}

// What a record says that is compared with the blob, and then not needed any more.
type statement struct {
	bodyBytes            uint64
	hash                 uint8
	hashBits             uint16
	seed                 uint64
	testHashes, testBits []uint64
}

// Returns the header of a sound blob, and the bits.
func parse(blob []byte) (Header, []byte, error) {
	h := Header{Bytes: uint64(len(blob))}
	fields, body, err := h.parseEnvelope(blob)
	if err != nil {
		return Header{}, nil, err
	}
	stated, err := h.parseRecord(fields)
	if err != nil {
		return Header{}, nil, err
	}
	bits, err := h.checkShape(stated, body)
	if err != nil {
		return Header{}, nil, err
	}
	if err := h.checkBits(stated, bits); err != nil {
		return Header{}, nil, err
	}
	return h, bits, nil
}

// Checks that a blob has the size that its record says, by the first of its bytes.
func checkSize(head []byte, size uint64) error {
	var h Header
	end, start, err := h.parseHead(head, size)
	if err != nil {
		return err
	}
	stated, err := h.parseRecord(head[fixedBytes:end])
	if err != nil {
		return err
	}
	if has := size - start - digestBytes; has != stated.bodyBytes {
		return unsound("expected a body of %d bytes, but it has %d", stated.bodyBytes, has)
	}
	return nil
}

// Checks what comes before the record; returns where the record ends, and where the body begins.
func (h *Header) parseHead(head []byte, size uint64) (end, start uint64, err error) {
	if size < fixedBytes+digestBytes {
		return 0, 0, unsound("expected at least %d bytes, but it has %d", fixedBytes+digestBytes, size)
	}
	if string(head[:8]) != magic {
		return 0, 0, unsound("expected %s at its beginning, but there is %q", magic, head[:8])
	}
	h.Format = binary.LittleEndian.Uint16(head[8:])
	if h.Format > 1 {
		return 0, 0, unsound("expected format version 0 or 1, but it is %d: a newer reader may know it", h.Format)
	}
	length := uint64(binary.LittleEndian.Uint32(head[10:]))
	end = fixedBytes + length
	start = (end + bodyAlignment - 1) / bodyAlignment * bodyAlignment
	if length > maxRecordBytes || start+digestBytes > size {
		return 0, 0, unsound("a record of %d bytes cannot be in a blob of %d", length, size)
	}
	return end, start, nil
}

// Checks what surrounds the record and the body, and the digest; returns both.
func (h *Header) parseEnvelope(blob []byte) (fields, body []byte, err error) {
	end, start, err := h.parseHead(blob, uint64(len(blob)))
	if err != nil {
		return nil, nil, err
	}
	content, stated := blob[:len(blob)-digestBytes], blob[len(blob)-digestBytes:]
	digest := blake3.Sum256(content)
	if !bytes.Equal(digest[:], stated) {
		return nil, nil, unsound("it states the digest %x, but its bytes have %x", stated, digest)
	}
	h.Digest = hex.EncodeToString(stated)
	for _, zero := range blob[end:start] {
		if zero != 0 {
			return nil, nil, unsound("expected zeros before its body")
		}
	}
	return blob[fixedBytes:end], content[start:], nil
}

// Reads the fields, and checks those that say enough by themselves.
func (h *Header) parseRecord(fields []byte) (stated statement, err error) {
	r := record{data: fields}
	h.Filter, h.Day = r.text(), r.text()
	h.layout, h.units, h.Probes = r.u8(), r.u64(), r.u32()
	stated.bodyBytes = r.u64()
	stated.hash, stated.hashBits, stated.seed = r.u8(), r.u16(), r.u64()
	key, encoding, origin := r.u64(), r.u8(), r.u8()
	h.IDs, h.FPPTarget = r.u64(), r.f64()
	hits, lookups := r.u64(), r.u64()
	h.OnesSet = r.u64()
	stated.testHashes, stated.testBits = r.list(), r.list()
	switch {
	case r.err != nil:
		return stated, unsound("%s", r.err)
	case len(r.data) > 0:
		return stated, unsound("its record has %d bytes after its last field", len(r.data))
	case !filterName.MatchString(h.Filter):
		return stated, unsound("expected the name of a filter, but it is %q", h.Filter)
	case h.layout == spark1 || h.layout == spark2:
		return stated, unsound("its layout is `spark%d`, and this package reads `blocked` and `guava`", h.layout-1)
	case h.layout > guava:
		return stated, unsound("expected layout 0 or 1, but it is %d", h.layout)
	case encoding == urls:
		return stated, unsound("its IDs are URLs, which this package does not normalise: look them up by the daemon, or in Python or C")
	case key != 0 || encoding != 0:
		return stated, unsound("a reserved field is used: key id %d, encoding of IDs %d", key, encoding)
	case origin > 1:
		return stated, unsound("expected origin 0 or 1, but it is %d", origin)
	case !(h.FPPTarget > 0 && h.FPPTarget < 1):
		return stated, unsound("expected an fpp target between 0 and 1, but it is %v", h.FPPTarget)
	case hits > lookups:
		return stated, unsound("expected at most as many hits as lookups, but it says %d of %d", hits, lookups)
	}
	if day, err := time.Parse("2006-01-02", h.Day); err != nil || day.Year() == 0 {
		return stated, unsound("expected a day as YYYY-MM-DD, but it is %q", h.Day)
	}
	h.IDsEstimated = origin == 1
	h.FPPMeasured = float64(hits) / math.Max(float64(lookups), 1)
	return stated, nil
}

// Checks that sizes and hash are those of the layout; returns the bits, which are the body without Guava's head.
func (h *Header) checkShape(stated statement, body []byte) ([]byte, error) {
	unitBytes, headBytes := uint64(64), uint64(0)
	hash, hashBits, seed := uint8(0), uint16(64), uint64(xxh3Seed)
	maxProbes, maxUnits := uint32(len(salts)), uint64(1)<<32
	h.Layout = "blocked"
	if h.layout == guava {
		unitBytes, headBytes = 8, guavaHeadBytes
		hash, hashBits, seed = 1, 128, 0
		maxProbes, maxUnits = maxClassicProbes, math.MaxInt32
		h.Layout = "guava"
	}
	switch {
	case h.units == 0 || h.units > maxUnits:
		return nil, unsound("it cannot have %d units", h.units)
	case h.Probes == 0 || h.Probes > maxProbes:
		return nil, unsound("expected 1 to %d probes, but it says %d", maxProbes, h.Probes)
	case stated.bodyBytes != headBytes+unitBytes*h.units || stated.bodyBytes != uint64(len(body)):
		return nil, unsound("expected a body of %d bytes, but it says %d and has %d",
			headBytes+unitBytes*h.units, stated.bodyBytes, len(body))
	case stated.hash != hash || stated.hashBits != hashBits || stated.seed != seed:
		return nil, unsound("hash %d with %d bits and seed %x is not that of its layout",
			stated.hash, stated.hashBits, stated.seed)
	}
	h.Bits = 8 * unitBytes * h.units
	if h.IDs == 0 || h.IDs > h.Bits {
		return nil, unsound("expected 1 to %d IDs, but it says %d", h.Bits, h.IDs)
	}
	head, bits := body[:headBytes], body[headBytes:]
	if h.layout == guava {
		want := binary.BigEndian.AppendUint32([]byte{1, byte(h.Probes)}, uint32(h.units))
		if !bytes.Equal(head, want) {
			return nil, unsound("expected a body that begins with %x, but it begins with %x", want, head)
		}
	}
	return bits, nil
}

// Checks that as many bits are set as the record says and the IDs set, and that this reader tests the writer's bits.
func (h *Header) checkBits(stated statement, bits []byte) error {
	if ones := countOnes(bits); ones != h.OnesSet {
		return unsound("expected that %d bits are set, but %d are", h.OnesSet, ones)
	}
	fill := float64(h.OnesSet) / float64(h.Bits)
	if expected, tolerance := h.expectedFill(); math.Abs(fill-expected) > tolerance {
		return unsound("expected that %d IDs set %.4f of its bits, but %.4f are set", h.IDs, expected, fill)
	}
	if why := h.checkTestIDs(stated.testHashes, stated.testBits); why != "" {
		return unsound("%s", why)
	}
	return nil
}

func countOnes(body []byte) uint64 {
	ones := 0
	for ; len(body) >= 8; body = body[8:] {
		ones += bits.OnesCount64(binary.LittleEndian.Uint64(body))
	}
	for _, b := range body {
		ones += bits.OnesCount8(b)
	}
	return uint64(ones)
}

// The share of bits that a number of IDs sets, and how far a sound filter may be from it.
func (h *Header) expectedFill() (fill, tolerance float64) {
	n, k, size := float64(h.IDs), float64(h.Probes), float64(h.Bits)
	if h.layout == blocked {
		load := n / float64(h.units)
		fill = -math.Expm1(load * math.Expm1(k*math.Log1p(-1.0/512)))
	} else {
		fill = -math.Expm1(-k * n / size)
	}
	deviation := k * math.Sqrt(n/2) / size
	return fill, math.Max(0.01*fill, 6*deviation)
}

// The fixed IDs prove that this reader hashes and addresses as the writer did.
func (h *Header) checkTestIDs(hashes, positions []uint64) string {
	f := Filter{header: *h}
	var ours, tested []uint64
	for i := 0; i < testIDs; i++ {
		length := i + 1
		if i >= 16 {
			length = 16 + 21*(i-15)
		}
		id := make([]byte, length)
		for j := range id {
			id[j] = byte('a' + (i+j)%26)
		}
		if h.layout == guava {
			h1, h2 := murmur3.Sum128(id)
			ours = append(ours, h1, h2)
			for c, n := h1, uint32(0); n < h.Probes; n++ {
				tested = append(tested, (c&0x7fffffffffffffff)%h.Bits)
				c += h2
			}
			continue
		}
		hash := xxh3.HashSeed(id, xxh3Seed)
		ours = append(ours, hash)
		for _, salt := range salts[:h.Probes] {
			tested = append(tested, 8*f.block(hash)+uint64((uint32(hash)*salt)>>23))
		}
	}
	if !equal(ours, hashes) {
		return "the hashes of the test IDs are not those of this reader"
	}
	if !equal(tested, positions) {
		return "the test IDs test other bits in this reader"
	}
	return ""
}

func equal(a, b []uint64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
