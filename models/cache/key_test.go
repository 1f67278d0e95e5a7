package cache

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/nereid-serving/nereid/infer"
)

func tensor(name string, dataType infer.DataType, shape []int64, data []byte) infer.Tensor {
	return infer.Tensor{Name: name, DataType: dataType, Shape: shape, Data: data}
}

// TestKeyFollowsInputsAlone changes one property of a request at a time and checks that only the
// space, the inputs and the parameters change its key.
func TestKeyFollowsInputsAlone(t *testing.T) {
	base := func() *infer.Request {
		return &infer.Request{
			Inputs: []infer.Tensor{
				tensor("A", infer.Int32, []int64{1, 2}, []byte{1, 2, 3, 4, 5, 6, 7, 8}),
				tensor("B", infer.Uint8, []int64{2 * inlineBytes}, bytes.Repeat([]byte{7}, 2*inlineBytes)),
			},
			Parameters: []infer.Parameter{{Name: "p", Kind: infer.IntParameter, Int: 1}, {Name: "q", Kind: infer.StringParameter, String: "s"}},
		}
	}
	h, err := newHasher()
	if err != nil {
		t.Fatal(err)
	}
	want := h.key(1, base())
	for _, test := range []struct {
		name   string
		same   bool
		change func(*infer.Request)
	}{
		{"nothing", true, func(*infer.Request) {}},
		{"order of inputs", true, func(r *infer.Request) { slices.Reverse(r.Inputs) }},
		{"id, priority, time-out, sequence", true, func(r *infer.Request) {
			r.ID, r.Priority, r.TimeoutMicros, r.Correlation.Number, r.Flags = "x", 3, 4, 5, infer.SequenceStart
		}},
		{"outputs", true, func(r *infer.Request) { r.Outputs = []string{"X"} }},
		{"name", false, func(r *infer.Request) { r.Inputs[0].Name = "a" }},
		{"names exchanged", false, func(r *infer.Request) { r.Inputs[0].Name, r.Inputs[1].Name = "B", "A" }},
		{"type", false, func(r *infer.Request) { r.Inputs[0].DataType = infer.Uint32 }},
		{"shape", false, func(r *infer.Request) { r.Inputs[0].Shape = []int64{2, 1} }},
		{"rank", false, func(r *infer.Request) { r.Inputs[0].Shape = []int64{1, 1, 2} }},
		{"a small byte", false, func(r *infer.Request) { r.Inputs[0].Data[7]++ }},
		{"the first of many bytes", false, func(r *infer.Request) { r.Inputs[1].Data[0]++ }},
		{"the last of many bytes", false, func(r *infer.Request) { r.Inputs[1].Data[2*inlineBytes-1]++ }},
		{"an input less", false, func(r *infer.Request) { r.Inputs = r.Inputs[:1] }},
		{"value of a parameter", false, func(r *infer.Request) { r.Parameters[0].Int = 2 }},
		{"kind of a parameter", false, func(r *infer.Request) {
			r.Parameters[0] = infer.Parameter{Name: "p", Kind: infer.DoubleParameter, Double: math.Float64frombits(1)}
		}},
		{"a parameter less", false, func(r *infer.Request) { r.Parameters = r.Parameters[:1] }},
	} {
		r := base()
		test.change(r)
		if same := h.key(1, r) == want; same != test.same {
			t.Errorf("%s: got the same key: %v, want %v", test.name, same, test.same)
		}
	}
	if h.key(2, base()) == want {
		t.Error("another space has the same key")
	}
	other, err := newHasher()
	if err != nil {
		t.Fatal(err)
	}
	if other.key(1, base()) == want {
		t.Error("keys are not secret: two servers make the same")
	}
}

func TestSelectionTextsAreUnique(t *testing.T) {
	texts := map[string][]string{}
	for _, wanted := range [][]string{{"A"}, {"B"}, {"A", "B"}, {"AB"}, {"A\x01", "B"}, {"A", "\x01B"}, {""}, {"", "A"}} {
		text := selection(wanted, 3)
		if other, twice := texts[text]; twice {
			t.Errorf("%q and %q have the same text", wanted, other)
		}
		texts[text] = wanted
	}
	if selection([]string{"B", "A"}, 3) != selection([]string{"A", "B"}, 3) {
		t.Error("the order of outputs counts")
	}
	if selection(nil, 3) != "" || selection([]string{"A", "B", "C"}, 3) != "" {
		t.Error("all outputs have a text")
	}
}

// material turns a fuzzer's bytes into requests. Most numbers are small, so that two requests are
// often equal.
type material []byte

func (m *material) byte() byte {
	if len(*m) == 0 {
		return 0
	}
	b := (*m)[0]
	*m = (*m)[1:]
	return b
}

func (m *material) text() string {
	n := min(int(m.byte()%6), len(*m))
	s := string((*m)[:n])
	*m = (*m)[n:]
	return s
}

func (m *material) request() (space uint64, r *infer.Request) {
	r = &infer.Request{}
	space = uint64(m.byte() % 3)
	for range m.byte() % 4 {
		in := infer.Tensor{Name: m.text(), DataType: infer.DataType(m.byte() % 4)}
		if r.Input(in.Name) != nil {
			continue
		}
		for range m.byte() % 4 {
			in.Shape = append(in.Shape, int64(int8(m.byte())))
		}
		in.Data = []byte(m.text())
		if m.byte()%8 == 0 {
			in.Data = append(bytes.Repeat([]byte{m.byte()}, inlineBytes), in.Data...)
		}
		r.Inputs = append(r.Inputs, in)
	}
	for range m.byte() % 3 {
		p := infer.Parameter{Name: m.text(), Kind: infer.ParameterKind(1 + m.byte()%4)}
		switch p.Kind {
		case infer.StringParameter:
			p.String = m.text()
		case infer.IntParameter:
			p.Int = int64(int8(m.byte()))
		case infer.BoolParameter:
			p.Bool = m.byte()%2 == 1
		case infer.DoubleParameter:
			p.Double = float64(m.byte()) / 2
		}
		r.Parameters = append(r.Parameters, p)
	}
	return space, r
}

// alike compares the parts of requests that keys depend on, without encoding them.
func alike(a, b *infer.Request) bool {
	byName := func(r *infer.Request) []infer.Tensor {
		return slices.SortedFunc(slices.Values(r.Inputs), func(x, y infer.Tensor) int { return cmp.Compare(x.Name, y.Name) })
	}
	return slices.EqualFunc(byName(a), byName(b), func(x, y infer.Tensor) bool {
		return x.Name == y.Name && x.DataType == y.DataType && slices.Equal(x.Shape, y.Shape) && bytes.Equal(x.Data, y.Data)
	}) && slices.Equal(a.Parameters, b.Parameters)
}

// FuzzKey checks that two requests have the same encoding and the same key if and only if they are
// alike.
func FuzzKey(f *testing.F) {
	f.Add([]byte("\x00\x01\x02AB\x01\x01\x02\x03abc"), []byte("\x00\x01\x01A\x01\x01\x02\x04Babc"))
	f.Add([]byte("\x00\x02\x01A\x01\x00\x01x\x01\x01B\x01\x00\x01y"), []byte("\x00\x02\x01B\x01\x00\x01y\x01\x01A\x01\x00\x01x"))
	f.Add([]byte("\x01\x01\x01A\x01\x01\x01\x05hello\x08z"), []byte("\x01\x01\x01A\x01\x01\x01\x05hello\x08z"))
	f.Add([]byte("\x01\x00\x01\x01p\x00\x01s"), []byte("\x01\x00\x01\x01p\x01s"))
	h, err := newHasher()
	if err != nil {
		f.Fatal(err)
	}
	digest := func(b, data []byte) []byte {
		sum := sha256.Sum256(data)
		return append(b, sum[:]...)
	}
	f.Fuzz(func(t *testing.T, one, two []byte) {
		first, second := material(one), material(two)
		s1, r1 := first.request()
		s2, r2 := second.request()
		var scratch scratch
		e1 := appendRequest(nil, &scratch, s1, r1, digest)
		e2 := appendRequest(nil, &scratch, s2, r2, digest)
		want := s1 == s2 && alike(r1, r2)
		if got := bytes.Equal(e1, e2); got != want {
			t.Errorf("written alike: %v, want %v\n%d %+v\n%d %+v", got, want, s1, r1, s2, r2)
		}
		if got := h.key(s1, r1) == h.key(s2, r2); got != want {
			t.Errorf("same key: %v, want %v\n%d %+v\n%d %+v", got, want, s1, r1, s2, r2)
		}
	})
}

func benchmarkRequest(n int) *infer.Request {
	return &infer.Request{Inputs: []infer.Tensor{
		tensor("INPUT1", infer.Uint8, []int64{int64(n)}, make([]byte, n)), tensor("INPUT0", infer.Uint8, []int64{4}, make([]byte, 4)),
	}}
}

// BenchmarkHit measures lookups that hit, for several input sizes.
func BenchmarkHit(b *testing.B) {
	for _, n := range []int{64, 4 << 10, 1 << 20} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c, _ := newCache(b, 1<<20)
			s, r := c.Space(1), benchmarkRequest(n)
			_, miss, _ := s.Lookup(r)
			if _, err := s.Insert(miss, reply("t", 64, "OUT")); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				if found, _, _ := s.Lookup(r); found == nil {
					b.Fatal("a miss")
				}
			}
		})
	}
}

// BenchmarkMiss measures a lookup that misses and the insertion of a response of 64 bytes into a
// full cache.
func BenchmarkMiss(b *testing.B) {
	c, _ := newCache(b, 1<<20)
	s, r := c.Space(1), benchmarkRequest(64)
	response := reply("t", 64, "OUT")
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		r.Inputs[1].Data[0], r.Inputs[1].Data[1], r.Inputs[1].Data[2], r.Inputs[1].Data[3] = byte(n), byte(n>>8), byte(n>>16), byte(n>>24)
		_, miss, _ := s.Lookup(r)
		if _, err := s.Insert(miss, response); err != nil {
			b.Fatal(err)
		}
	}
}
