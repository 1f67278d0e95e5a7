package frames

import (
	"errors"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/ipc"
	"github.com/nereid-serving/nereid/shm"
)

// mustName returns a table of names.
func mustName(t testing.TB, inputs, outputs []string) *Names {
	t.Helper()
	names, err := NewNames(inputs, outputs)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestNameTableSharesInputsAndOutputs(t *testing.T) {
	n := mustName(t, []string{"A", "B"}, []string{"B", "C"})
	if n.index["B"] != 1 || n.isOutput(1) || !n.isOutput(2) || !n.isOutput(3) || n.isOutput(4) {
		t.Errorf("got table %+v", n)
	}
	if index, ok := n.outputIndex("B"); !ok || index != 2 {
		t.Errorf("output B: got index %d, %t, want 2", index, ok)
	}
	if _, ok := n.outputIndex("A"); ok {
		t.Error("input A is an output")
	}
	if err := n.add(4, []byte("D")); err != nil || n.list[4] != "D" || n.isOutput(4) {
		t.Errorf("add D: got error %v, table %+v", err, n)
	}
	for _, test := range []struct {
		index uint64
		name  string
		rule  string
	}{{4, "E", "name"}, {6, "E", "name"}, {5, "\xff", "utf8"}, {5, strings.Repeat("x", maxNameBytes), "name"}} {
		var broken *ipc.ProtocolError
		if err := n.add(test.index, []byte(test.name)); !errors.As(err, &broken) || broken.Rule != test.rule {
			t.Errorf("add %d %.10q: got error %v, want one of rule %s", test.index, test.name, err, test.rule)
		}
	}
	for len(n.list) < maxNames {
		if err := n.add(uint64(len(n.list)), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.add(maxNames, nil); err == nil {
		t.Error("a table of 65535 names takes another")
	}
}

// TestRefusedNamesLeaveTheTableInStep sends a stub a name that does not fit into a frame, then a
// name for which there is no memory. The table of names stays the same as the stub's.
func TestRefusedNamesLeaveTheTableInStep(t *testing.T) {
	p := newPeer(t, shm.Memfd{})
	e := p.encoder
	long := strings.Repeat("n", ipc.MaxFrame)
	index, err := e.nameIndex(long)
	if err != nil || int(index) != len(e.Names.list)-1 || e.Names.list[index] != long {
		t.Fatalf("got index %d, error %v, want the next one", index, err)
	}
	var held []*shm.Block
	for {
		block, err := p.pool.Alloc(shm.PageSize)
		if err != nil {
			break
		}
		held = append(held, block)
	}
	known := len(e.Names.list)
	if _, err := e.nameIndex("m" + long); Refusal(err) == nil || len(e.Names.list) != known {
		t.Errorf("got error %v and %d names, want a refusal and %d", err, len(e.Names.list), known)
	}
	if _, err := e.nameIndex("short"); err != nil {
		t.Errorf("short name: got error %v, want none", err)
	}
	for _, block := range held {
		block.Release()
	}
}
