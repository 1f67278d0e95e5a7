package frames

import (
	"bytes"
	"encoding/binary"

	"github.com/nereid-serving/nereid/ipc"
	"github.com/vmihailenco/msgpack/v5"
)

// MaxMap limits a body that is a MessagePack map, in bytes. Stubs cut longer texts.
const MaxMap = 1 << 20

const (
	maxHello = 64 << 10 // for HELLO, which has two versions and two paths
	// maxMapDepth limits the nesting of such a map. None of today's maps nests; the library skips
	// unknown fields by recursion as deep as the body.
	maxMapDepth = 16
	// elementCost is the memory of an element of a list or map. The largest, the label of a metric,
	// exists twice while its list grows.
	elementCost = 64
	// smallMap is the largest cost of a body that is decoded without a charge.
	smallMap = 16 << 10
)

// DecodeMap decodes a body that is a MessagePack map. It charges heap for the result before it
// allocates it. The caller gives the charged bytes back when it drops the result. If there is no
// room for them, the error is a Refusal.
func DecodeMap(heap *Heap, f ipc.Frame, into any) (charged int64, err error) {
	limit := MaxMap
	switch f.Kind {
	case ipc.Hello:
		limit = maxHello
	case ipc.Call:
		limit = ipc.MaxSpilledBody // the files of a model to load
	}
	if len(f.Body) > limit {
		return 0, ipc.Broken("frame", "body of %s has %d bytes, want at most %d", f.Kind, len(f.Body), limit)
	}
	cost, what := skimMap(f.Body)
	if what != "" {
		return 0, ipc.Broken("msgpack", "body of %s %s", f.Kind, what)
	}
	unmarshal, taken := msgpack.Unmarshal, int64(0)
	if cost > smallMap {
		if err := heap.Take(cost); err != nil {
			return 0, err
		}
		taken, unmarshal = cost, unmarshalOnce
	}
	decoded := false
	defer func() { // after a panic too
		if !decoded {
			heap.Give(taken)
		}
	}()
	if err := unmarshal(f.Body, into); err != nil { // bound: smallMap, or charged
		return 0, ipc.Broken("msgpack", "body of %s: %v", f.Kind, err)
	}
	decoded = true
	return taken, nil
}

// unmarshalOnce is msgpack.Unmarshal with a new decoder: those that the library reuses keep buffers
// as long as their longest text.
func unmarshalOnce(b []byte, into any) error {
	return msgpack.NewDecoder(bytes.NewReader(b)).Decode(into) // bound: charged
}

// EncodeMap encodes a struct with msgpack fields as a body. An error names the field that no stub
// could decode.
func EncodeMap(kind ipc.Kind, fields any) ([]byte, error) {
	if err := checkFields(kind, fields); err != nil {
		return nil, err
	}
	return msgpack.Marshal(fields) // bound: the server's own fields
}

// skimMap checks, without keeping anything, that b is exactly one MessagePack map of value types
// that the protocol uses, nested no deeper than maxMapDepth. It returns the fault, or "" and the
// memory that decoding b takes: its texts, the decoder's buffer for the longest text, and the
// elements of its fields.
func skimMap(b []byte) (cost int64, fault string) {
	if len(b) == 0 || b[0]&0xf0 != 0x80 && b[0] != 0xde && b[0] != 0xdf {
		return 0, "is not a map"
	}
	cost = int64(len(b))
	longest := uint64(0)
	// left is the number of values still expected on each level, the outermost first.
	var left [maxMapDepth + 1]uint64
	left[0] = 1
	level := 0
	for {
		for left[level] == 0 {
			if level == 0 {
				if len(b) > 0 {
					return 0, "continues after its map"
				}
				return cost + 2*int64(longest), "" // twice, as the buffer grows
			}
			level--
		}
		left[level]--
		if len(b) == 0 {
			return 0, "ends early"
		}
		skip, values, ok := msgpackHead(b)
		if !ok {
			return 0, "has a code that is not used, or ends early"
		}
		if skip > uint64(len(b)) {
			return 0, "ends early"
		}
		if isText(b[0]) {
			longest = max(longest, skip)
		}
		b = b[skip:]
		if values == 0 {
			continue
		}
		if values > uint64(len(b)) { // a value has at least one byte
			return 0, "ends early"
		}
		if level == maxMapDepth {
			return 0, "nests too deep"
		}
		if level > 0 {
			cost += elementCost * int64(values)
		}
		level++
		left[level] = values
	}
}

// isText reports whether a value with this first byte is a text. Binary values, such as files, need
// no buffer.
func isText(code byte) bool { return code >= 0xa0 && code < 0xc0 || code >= 0xd9 && code <= 0xdb }

// msgpackHead reads the head of the value at the start of b, which is not empty. It returns the
// number of bytes of the value without nested values, and the number of these. ok is false if the
// head is cut off, or of a type that no message uses.
func msgpackHead(b []byte) (skip, values uint64, ok bool) {
	switch c := b[0]; {
	case c < 0x80 || c >= 0xe0: // a small integer
		return 1, 0, true
	case c < 0x90:
		return 1, 2 * uint64(c&15), true
	case c < 0xa0:
		return 1, uint64(c & 15), true
	case c < 0xc0:
		return 1 + uint64(c&31), 0, true
	case c == 0xc0 || c == 0xc2 || c == 0xc3:
		return 1, 0, true
	case c == 0xca || c == 0xcb:
		return 1 + 4<<(c-0xca), 0, true
	case c >= 0xcc && c <= 0xd3:
		return 1 + 1<<((c-0xcc)&3), 0, true
	}
	var width int
	switch b[0] {
	case 0xc4, 0xd9:
		width = 1
	case 0xc5, 0xda, 0xdc, 0xde:
		width = 2
	case 0xc6, 0xdb, 0xdd, 0xdf:
		width = 4
	default:
		return 0, 0, false
	}
	if len(b) <= width {
		return 0, 0, false
	}
	var wide [4]byte
	copy(wide[4-width:], b[1:1+width])
	n := uint64(binary.BigEndian.Uint32(wide[:]))
	skip = 1 + uint64(width)
	switch b[0] {
	case 0xdc, 0xdd:
		return skip, n, true
	case 0xde, 0xdf:
		return skip, 2 * n, true
	}
	return skip + n, 0, true
}
