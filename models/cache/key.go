package cache

import (
	"cmp"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"math"
	"slices"
	"sync"

	"github.com/nereid-serving/nereid/infer"
)

// Key identifies everything that a response depends on: the loaded version, the name, type, shape
// and bytes of each input, and the parameters. It does not depend on the order of the inputs, nor
// on id, priority, timeout or correlation id. The requested outputs are not part of it, see
// Space.Lookup.
//
// It is a keyed hash. Two different requests of n bytes have the same key with a probability of
// less than (n/16+2)/2¹²⁷, whatever the clients send, because they cannot know the secret.
type Key [16]byte

// inlineBytes is the size up to which an input's bytes are hashed with the rest of the request.
const inlineBytes = 4 << 10

// hasher makes keys. Its secrets live as long as the server and never leave it. The bytes of large
// inputs are hashed with a separate secret: with a single one, a client could make two messages
// whose difference vanishes.
type hasher struct {
	whole, bulk cipher.AEAD
	scratch     sync.Pool // of *scratch
}

// scratch is reusable memory for one key.
type scratch struct {
	message []byte   // bound: the request, whose inputs above inlineBytes are hashed
	order   []int    // bound: the request's inputs
	nonce   [12]byte // zeros: each message has only one tag, which is never shown
	tag     Key
}

// maxScratch bounds the memory that is kept for the next key.
const maxScratch = 64 << 10

func newHasher() (*hasher, error) {
	h := &hasher{}
	h.scratch.New = func() any { return new(scratch) }
	for _, aead := range []*cipher.AEAD{&h.whole, &h.bulk} {
		secret := make([]byte, 16)
		_, _ = rand.Read(secret) // never fails
		block, err := aes.NewCipher(secret)
		if err != nil {
			return nil, err
		}
		if *aead, err = cipher.NewGCM(block); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// key returns the key of a request in a space.
func (h *hasher) key(space uint64, r *infer.Request) Key {
	s := h.scratch.Get().(*scratch)
	s.message = appendRequest(s.message[:0], s, space, r, func(b, data []byte) []byte {
		return h.bulk.Seal(b, s.nonce[:], nil, data)
	})
	h.whole.Seal(s.tag[:0], s.nonce[:], nil, s.message)
	key := s.tag
	if cap(s.message) <= maxScratch {
		h.scratch.Put(s)
	}
	return key
}

// Reports whether an input's bytes or their hash follow.
const (
	formInline = 0
	formDigest = 1
)

// appendRequest appends the text that a key is made from. Different Keys have different texts,
// unless digests of their inputs collide: every part has a fixed length or is preceded by its
// length or count.
//
// bound: the request, whose inputs above inlineBytes are hashed
func appendRequest(b []byte, s *scratch, space uint64, r *infer.Request, digest func(b, data []byte) []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, space)
	s.order = s.order[:0]
	for i := range r.Inputs {
		s.order = append(s.order, i)
	}
	if len(s.order) > 1 {
		// Names differ: a request with two inputs of one name is refused before.
		slices.SortFunc(s.order, func(i, j int) int { return cmp.Compare(r.Inputs[i].Name, r.Inputs[j].Name) })
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(s.order)))
	for _, i := range s.order {
		in := &r.Inputs[i]
		b = appendString(b, in.Name)
		b = append(b, byte(in.DataType))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(in.Shape)))
		for _, d := range in.Shape {
			b = binary.LittleEndian.AppendUint64(b, uint64(d))
		}
		b = binary.LittleEndian.AppendUint64(b, uint64(len(in.Data)))
		if len(in.Data) <= inlineBytes {
			b = append(append(b, formInline), in.Data...)
		} else {
			b = digest(append(b, formDigest), in.Data)
		}
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(r.Parameters)))
	for i := range r.Parameters {
		b = appendParameter(b, &r.Parameters[i])
	}
	return b
}

// selection writes the requested outputs in a fixed order; "" if they are all outputs of the model,
// or none is named.
//
// bound: the names of the model's outputs
func selection(wanted []string, all int) string {
	if len(wanted) == 0 || len(wanted) == all { // each is named once
		return ""
	}
	if len(wanted) > 1 && !slices.IsSorted(wanted) {
		wanted = slices.Sorted(slices.Values(wanted))
	}
	var b []byte
	for _, name := range wanted {
		b = appendString(b, name)
	}
	return string(b)
}

func appendParameter(b []byte, p *infer.Parameter) []byte {
	b = append(appendString(b, p.Name), byte(p.Kind))
	switch p.Kind {
	case infer.StringParameter:
		return appendString(b, p.String)
	case infer.IntParameter:
		return binary.LittleEndian.AppendUint64(b, uint64(p.Int))
	case infer.BoolParameter:
		if p.Bool {
			return append(b, 1)
		}
		return append(b, 0)
	case infer.DoubleParameter:
		return binary.LittleEndian.AppendUint64(b, math.Float64bits(p.Double))
	}
	return b
}

// bound: a name or a parameter of the request
func appendString(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(s))), s...)
}
