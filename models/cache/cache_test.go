package cache

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nereid-serving/nereid/infer"
	"github.com/nereid-serving/nereid/metrics"
)

// lender is an Allocator that counts unreleased memory and overwrites released memory.
type lender struct{ lent atomic.Int64 }

func (l *lender) allocate(n int) ([]byte, infer.Memory, error) {
	l.lent.Add(1)
	m := &countedMemory{lender: l, data: make([]byte, n)}
	m.refs.Store(1)
	return m.data, m, nil
}

type countedMemory struct {
	lender *lender
	data   []byte
	refs   atomic.Int64
}

func (m *countedMemory) Retain() {
	if m.refs.Add(1) <= 1 {
		panic("retained after the last release")
	}
}

func (m *countedMemory) Release() {
	switch n := m.refs.Add(-1); {
	case n < 0:
		panic("released twice")
	case n == 0:
		m.lender.lent.Add(-1)
		for i := range m.data {
			m.data[i] = 0xDD
		}
	}
}

func newCache(t testing.TB, size int64) (*Cache, *lender) {
	t.Helper()
	l := &lender{}
	c, err := New(Config{Size: size, Allocate: l.allocate})
	if err != nil {
		t.Fatal(err)
	}
	return c, l
}

func ask(text string, outputs ...string) *infer.Request {
	return &infer.Request{Outputs: outputs, Inputs: []infer.Tensor{{Name: "IN", DataType: infer.Bytes, Shape: []int64{int64(len(text))}, Data: []byte(text)}}}
}

// reply returns a response whose outputs have n bytes each, made of the output's name and the text.
func reply(text string, n int, names ...string) *infer.Response {
	r := &infer.Response{Final: true}
	for _, name := range names {
		data := bytes.Repeat([]byte(name+text+"."), n/(len(name)+len(text)+1)+1)[:n]
		r.Outputs = append(r.Outputs, infer.Tensor{Name: name, DataType: infer.Uint8, Shape: []int64{int64(n)}, Data: data})
	}
	return r
}

func describe(r *infer.Response) string {
	if r == nil {
		return "miss"
	}
	var parts []string
	for _, o := range r.Outputs {
		parts = append(parts, o.Name+"="+string(o.Data))
	}
	return strings.Join(parts, " ")
}

func put(t *testing.T, s *Space, r *infer.Request, response *infer.Response) {
	t.Helper()
	found, miss, _ := s.Lookup(r)
	if found != nil {
		t.Fatalf("got a hit, want a miss to put something in")
	}
	if _, err := s.Insert(miss, response); err != nil {
		t.Fatal(err)
	}
}

func TestOutputsAreFoundIfAllAreKept(t *testing.T) {
	for _, test := range []struct {
		name   string
		put    [][]string // the requested outputs of each request, which get exactly these; nil requests all
		ask    []string
		want   string
		lacksB bool // the model omits B unless B alone is requested
	}{
		{"all of all", [][]string{nil}, nil, "A=At B=Bt C=Ct", false},
		{"some of all", [][]string{nil}, []string{"C", "A"}, "A=At C=Ct", false},
		{"all by their names", [][]string{nil}, []string{"C", "A", "B"}, "A=At B=Bt C=Ct", false},
		{"all, which was named", [][]string{{"B", "C", "A"}}, nil, "A=At B=Bt C=Ct", false},
		{"all of some", [][]string{{"A"}}, nil, "miss", false},
		{"more than was asked", [][]string{{"A"}}, []string{"A", "B"}, "miss", false},
		{"less than was asked", [][]string{{"A", "B"}}, []string{"A"}, "miss", false},
		{"another", [][]string{{"A"}}, []string{"B"}, "miss", false},
		{"the same", [][]string{{"A"}}, []string{"A"}, "A=At", false},
		{"the same in another order", [][]string{{"A", "C"}}, []string{"C", "A"}, "A=At C=Ct", false},
		{"each its own", [][]string{{"A"}, {"B"}, nil}, []string{"B"}, "B=Bt", false},
		{"what the model leaves out of all", [][]string{nil}, []string{"B"}, "miss", true},
		{"what it was asked for alone", [][]string{nil, {"B"}}, []string{"B"}, "B=Bt", true},
		{"all of such a model", [][]string{nil, {"B"}}, nil, "A=At C=Ct", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, _ := newCache(t, 1<<20)
			s := c.Space(3)
			for _, wanted := range test.put {
				names := slices.Clone(wanted)
				if names == nil {
					names = []string{"A", "B", "C"}
					if test.lacksB {
						names = []string{"A", "C"}
					}
				}
				slices.Sort(names)
				_, miss, _ := s.Lookup(ask("t", wanted...))
				if _, err := s.Insert(miss, reply("t", 2, names...)); err != nil {
					t.Fatal(err)
				}
			}
			found, _, _ := s.Lookup(ask("t", test.ask...))
			if got := describe(found); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestSpacesAreSeparate(t *testing.T) {
	c, _ := newCache(t, 1<<20)
	first, second := c.Space(1), c.Space(1)
	put(t, first, ask("t"), reply("t", 10, "OUT"))
	if found, _, _ := second.Lookup(ask("t")); found != nil {
		t.Errorf("another space answers: %s", describe(found))
	}
	first.Close()
	if found, _, _ := first.Lookup(ask("t")); found != nil {
		t.Errorf("a closed space answers: %s", describe(found))
	}
	_, miss, _ := first.Lookup(ask("t"))
	if _, err := first.Insert(miss, reply("t", 10, "OUT")); err == nil {
		t.Error("a closed space takes an answer")
	}
	if s := c.Stats(); s.Used != 0 || s.Entries != 0 || s.Evictions != 0 {
		t.Errorf("got %+v after the only space with entries was closed, want nothing used and nothing evicted", s)
	}
}

// TestEntriesOwnTheirBytes checks that an entry does not share memory with the inserted response,
// and that a response that was found stays intact after its entry is evicted.
func TestEntriesOwnTheirBytes(t *testing.T) {
	for _, n := range []int{10, blockBytes} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			c, lent := newCache(t, int64(2*n)+2*entryBytes)
			s := c.Space(1)
			original := reply("t", n, "OUT")
			original.Parameters = []infer.Parameter{{Name: "p", Kind: infer.StringParameter, String: "v"}}
			want := bytes.Clone(original.Outputs[0].Data)
			put(t, s, ask("t"), original)
			clear(original.Outputs[0].Data)
			original.Outputs[0].Shape[0] = -1
			original.Parameters[0].String = "spoilt"

			found, _, _ := s.Lookup(ask("t"))
			put(t, s, ask("u"), reply("u", 2*n, "OUT")) // evicts the entry of "t"
			if again, _, _ := s.Lookup(ask("t")); again != nil {
				t.Fatal("it was not evicted")
			}
			if o := found.Outputs[0]; !bytes.Equal(o.Data, want) || o.Shape[0] != int64(n) || found.Parameters[0].String != "v" || !found.Final {
				t.Errorf("got another response than was put in: shape %v, parameters %v", o.Shape, found.Parameters)
			}
			found.Release()
			s.Close()
			if n := lent.lent.Load(); n != 0 {
				t.Errorf("%d blocks are still lent", n)
			}
		})
	}
}

func TestInsertRejectsOversizedResponses(t *testing.T) {
	c, _ := newCache(t, 1000)
	s := c.Space(1)
	_, first, _ := s.Lookup(ask("t"))
	_, second, _ := s.Lookup(ask("t"))
	_, err := s.Insert(first, reply("t", 2000, "OUT"))
	var refusal *infer.Error
	if want := "Requested byte_size: 2331 is greater than total cache size: 1000"; !errors.As(err, &refusal) || err.Error() != want {
		t.Errorf("got %v, want %q", err, want)
	}
	if _, err := s.Insert(first, reply("t", 10, "OUT")); err != nil {
		t.Error(err)
	}
	if _, err := s.Insert(second, reply("t", 10, "OUT")); !errors.Is(err, ErrExists) {
		t.Errorf("second answer to the same: got %v, want ErrExists", err)
	}
	if _, err := New(Config{Size: MinSize - 1}); err == nil {
		t.Error("a cache that is too small was made")
	}
	tiny, err := New(Config{Size: MinSize})
	if err != nil {
		t.Fatal(err)
	}
	_, miss, _ := tiny.Space(1).Lookup(ask("t"))
	if _, err := tiny.Space(1).Insert(miss, reply("t", 0, "OUT")); err == nil || tiny.Stats().Entries != 0 {
		t.Errorf("a cache in which nothing fits has kept something: %v", err)
	}
}

// reference is a simple model of the cache: a list, most recently used entry first.
type reference struct {
	size int64
	list []*kept
	metrics.CacheFigures
}

type kept struct {
	space  int
	text   string
	size   int64
	answer string
}

func (r *reference) used() (n int64) {
	for _, k := range r.list {
		n += k.size
	}
	return n
}

func (r *reference) lookup(space int, text string) string {
	r.Lookups++
	at := slices.IndexFunc(r.list, func(k *kept) bool { return k.space == space && k.text == text })
	if at < 0 {
		r.Misses++
		return "miss"
	}
	r.Hits++
	k := r.list[at]
	r.list = slices.Insert(slices.Delete(r.list, at, at+1), 0, k)
	return k.answer
}

func (r *reference) insert(k *kept) {
	if k.size > r.size {
		return
	}
	for r.used()+k.size > r.size {
		r.list = r.list[:len(r.list)-1]
		r.Evictions++
	}
	r.list = slices.Insert(r.list, 0, k)
}

// TestCacheAgreesWithTheReference applies random operations to a cache and to the reference and
// compares them.
func TestCacheAgreesWithTheReference(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		size := int64(1000 + random.IntN(1<<18))
		c, lent := newCache(t, size)
		r := &reference{size: size}
		spaces := []*Space{c.Space(1), c.Space(1), c.Space(1)}
		for step := range 2000 {
			at := random.IntN(len(spaces))
			if random.IntN(200) == 0 {
				spaces[at].Close()
				spaces[at] = c.Space(1)
				r.list = slices.DeleteFunc(r.list, func(k *kept) bool { return k.space == at })
			}
			text := fmt.Sprint(random.IntN(60))
			found, miss, _ := spaces[at].Lookup(ask(text))
			want := r.lookup(at, text)
			if got := describe(found); got != want {
				t.Fatalf("seed %d, step %d: got %.60q, want %.60q", seed, step, got, want)
			}
			if found != nil {
				found.Release()
				continue
			}
			n := random.IntN(400)
			if random.IntN(10) == 0 {
				n = blockBytes + random.IntN(100)
			}
			answer := reply(text+fmt.Sprint(step), n, "OUT")
			_, err := spaces[at].Insert(miss, answer)
			k := &kept{space: at, text: text, size: sizeOf(answer.Outputs, nil), answer: describe(answer)}
			if (err != nil) != (k.size > size) {
				t.Fatalf("seed %d, step %d: %d bytes in a cache of %d: got %v", seed, step, k.size, size, err)
			}
			r.insert(k)
			s := c.Stats()
			if s.Used != r.used() || s.Entries != len(r.list) || s.Lookups != r.Lookups || s.Hits != r.Hits || s.Misses != r.Misses || s.Evictions != r.Evictions {
				t.Fatalf("seed %d, step %d: got %+v, want %d bytes, %d entries, %+v", seed, step, s, r.used(), len(r.list), r.CacheFigures)
			}
		}
		for _, s := range spaces {
			s.Close()
		}
		if s := c.Stats(); s.Used != 0 || s.Entries != 0 || c.order.Len() != 0 || lent.lent.Load() != 0 {
			t.Errorf("seed %d: %+v is left, %d blocks are lent", seed, s, lent.lent.Load())
		}
	}
}

// TestStormMixesNoResponses uses a cache that is too small from many goroutines while versions come
// and go. It checks that no request gets another request's response or a response while it is
// overwritten.
func TestStormMixesNoResponses(t *testing.T) {
	c, lent := newCache(t, 4*blockBytes)
	var spaces [3]atomic.Pointer[Space]
	for i := range spaces {
		spaces[i].Store(c.Space(1))
	}
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(worker), 7))
			for range 400 {
				at := random.IntN(len(spaces))
				s := spaces[at].Load()
				if random.IntN(50) == 0 {
					fresh := c.Space(1)
					if spaces[at].CompareAndSwap(s, fresh) {
						s.Close()
					}
				}
				text := fmt.Sprint(random.IntN(12))
				n := 100
				if len(text) > 1 || text > "7" {
					n = blockBytes + 5
				}
				want := reply(text, n, "OUT")
				found, miss, _ := s.Lookup(ask(text))
				if found == nil {
					_, err := s.Insert(miss, want)
					var refusal *infer.Error
					if errors.As(err, &refusal) && !strings.Contains(refusal.Message, "being stored") {
						t.Error(err)
					}
					continue
				}
				if got := describe(found); got != describe(want) {
					t.Errorf("%s: got %.80q, want %.80q", text, got, describe(want))
				}
				found.Release()
				if stats := c.Stats(); stats.Used > stats.Size {
					t.Errorf("%d bytes of %d are used", stats.Used, stats.Size)
				}
			}
		})
	}
	all.Wait()
	for i := range spaces {
		spaces[i].Load().Close()
	}
	if s := c.Stats(); s.Used != 0 || s.Entries != 0 || c.coming != 0 || lent.lent.Load() != 0 {
		t.Errorf("%+v is left, %d bytes are coming, %d blocks are lent", s, c.coming, lent.lent.Load())
	}
}
