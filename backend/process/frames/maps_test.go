package frames_test

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/backend/process/frames"
	"github.com/nereid-serving/nereid/backend/process/processtest"
	"github.com/nereid-serving/nereid/budget"
	"github.com/nereid-serving/nereid/internal/testkit"
	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/ipc/ipctest"
	"github.com/vmihailenco/msgpack/v5"
)

// nested returns a map with one field that has depth nested arrays.
func nested(depth int) []byte {
	return append(append([]byte("\x81\xa1x"), bytes.Repeat([]byte{0x91}, depth)...), 0xc0)
}

func TestDecodingBoundsMemory(t *testing.T) {
	text := func(n int) []byte {
		b, err := msgpack.Marshal(map[string]string{"error": strings.Repeat("x", n)})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, test := range map[string]struct {
		kind ipc.Kind
		body []byte
		want string // part of the error; "" for success
	}{
		"short":               {ipc.Initialized, text(5), ""},
		"long":                {ipc.Initialized, text(frames.MaxMap - 100), ""},
		"too long":            {ipc.Initialized, text(frames.MaxMap), "want at most 1048576"},
		"hello":               {ipc.Hello, text(frames.MaxHello - 100), ""},
		"hello, too long":     {ipc.Hello, text(frames.MaxHello), "want at most 65536"},
		"unknown field":       {ipc.Log, []byte("\x82\xa1x\x93\x01\xcb12345678\xde\x00\x01\xa1y\xc0\xa5level\x02"), ""},
		"deep":                {ipc.Log, nested(frames.MaxMapDepth - 1), ""},
		"too deep":            {ipc.Log, nested(frames.MaxMapDepth), "nests too deep"},
		"a mebibyte of lists": {ipc.Initialized, nested(frames.MaxMap - 10), "nests too deep"},
		"empty":               {ipc.Log, nil, "is not a map"},
		"list":                {ipc.Log, []byte{0x90}, "is not a map"},
		"two maps":            {ipc.Log, []byte{0x80, 0x80}, "continues after its map"},
		"cut off":             {ipc.Log, []byte{0x81, 0xa1}, "ends early"},
		"cut off in a head":   {ipc.Log, []byte{0x81, 0xdb, 0}, "ends early"},
		"endless":             {ipc.Log, []byte{0xdf, 0xff, 0xff, 0xff, 0xff, 0xa0, 0xa0}, "ends early"},
		"extension":           {ipc.Log, []byte{0x81, 0xa0, 0xd4, 1, 1}, "code that is not used"},
		"wrong type":          {ipc.Log, []byte("\x81\xa5level\xa1x"), "body of LOG"},
	} {
		var into struct {
			Level int    `msgpack:"level"`
			Error string `msgpack:"error"`
		}
		var err error
		n := testkit.Allocated(func() { _, err = frames.DecodeMap(nil, ipc.Frame{Kind: test.kind, Body: test.body}, &into) })
		if (err == nil) != (test.want == "") || err != nil && (processtest.RuleOf(err) == "" || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: got error %v, want one with %q", name, err, test.want)
		}
		if limit := 4*uint64(len(test.body)) + 64<<10; n > limit {
			t.Errorf("%s: %d bytes were allocated, want at most %d", name, n, limit)
		}
	}
}

// TestMapsAreChargedBeforeTheyAreDecoded decodes the values with the highest cost for their size.
// It allocates no more than it charges, and nothing without room on the account.
func TestMapsAreChargedBeforeTheyAreDecoded(t *testing.T) {
	const size = frames.MaxMap - 32
	list := func(field, element string) []byte {
		n := size / len(element)
		b := binary.BigEndian.AppendUint32(append([]byte{0x81, 0xa1}, field+"\xdd"...), uint32(n))
		return append(b, strings.Repeat(element, n)...)
	}
	for name, body := range map[string][]byte{
		"empty texts":  list("t", "\xa0"),
		"short texts":  list("t", "\xa1x"),
		"empty labels": list("l", "\x90"),
		"short labels": list("l", "\x92\xa1x\xa1x"),
		"numbers":      list("n", "\x01"),
		"long text":    append(binary.BigEndian.AppendUint32([]byte("\x81\xa1s\xdb"), size), strings.Repeat("x", size)...),
	} {
		for _, limit := range []int64{1 << 30, 1 << 20} {
			heap := &frames.Heap{Account: budget.New(budget.Config{Limit: limit})}
			var into struct {
				S string      `msgpack:"s"`
				T []string    `msgpack:"t"`
				L [][2]string `msgpack:"l"`
				N []float64   `msgpack:"n"`
			}
			var (
				charged int64
				err     error
			)
			n := testkit.Allocated(func() { charged, err = frames.DecodeMap(heap, ipc.Frame{Kind: ipc.Call, Body: body}, &into) })
			if refused := limit < 1<<30; refused != (frames.Refusal(err) != nil) || !refused && err != nil {
				t.Errorf("%s with %d bytes: got error %v", name, limit, err)
			}
			if most := uint64(charged) + 64<<10; n > most {
				t.Errorf("%s with %d bytes: %d bytes were allocated, want at most %d", name, limit, n, most)
			}
			if got := heap.Account.Used(budget.Frames); got != charged {
				t.Errorf("%s with %d bytes: %d bytes are charged, want %d", name, limit, got, charged)
			}
		}
	}
	heap := &frames.Heap{Account: budget.New(budget.Config{Limit: 1 << 30})}
	wrong := append(binary.BigEndian.AppendUint32([]byte("\x81\xa1s\x91\xdb"), size/2), strings.Repeat("x", size/2)...)
	var into struct {
		S string `msgpack:"s"`
	}
	if charged, err := frames.DecodeMap(heap, ipc.Frame{Kind: ipc.Call, Body: wrong}, &into); err == nil || charged != 0 || heap.Account.Total() != 0 {
		t.Errorf("a list in place of a text: got error %v, %d bytes charged, %d left", err, charged, heap.Account.Total())
	}
	full := &frames.Heap{Account: budget.New(budget.Config{Limit: 64})}
	if charged, err := frames.DecodeMap(full, ipc.Frame{Kind: ipc.Log, Body: []byte("\x81\xa5level\x02")}, &struct{}{}); charged != 0 || err != nil {
		t.Errorf("a small map: %d bytes are charged, error %v, want none", charged, err)
	}
}

// FuzzMaps checks that msgpack's Skip consumes exactly the bodies that skimMap accepts.
func FuzzMaps(f *testing.F) {
	for _, name := range []string{"hello", "initialized", "initialized_error", "finalized", "log", "initialize", "completed", "ready", "call_load", "call_new_metric"} {
		f.Add(ipctest.Body(f, name))
	}
	f.Add(nested(frames.MaxMapDepth))
	f.Add([]byte("\x8f\x01\xd0\x01\xcc\x01\xd1\x01\x01\xcd\x01\x01\xd2\x01\x01\x01\x01\xca\x01\x01\x01\x01\xdc\x00\x01\xc4\x01\x01"))
	f.Fuzz(func(t *testing.T, body []byte) {
		_, what := frames.SkimMap(body)
		if what != "" {
			return
		}
		rest := bytes.NewReader(body)
		if err := msgpack.NewDecoder(rest).Skip(); err != nil || rest.Len() > 0 {
			t.Errorf("accepted, but the library says %v and leaves %d bytes", err, rest.Len())
		}
	})
}
