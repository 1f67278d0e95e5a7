package fakecuda

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"testing"
)

// State is the environment variable with the file of a driver's counts. Without it each process
// counts for itself.
const State = "FAKECUDA_STATE"

// Kinds of live things that tests count; driver/fake.h has all.
const (
	Allocation = 1
	Stream     = 5
	Context    = 7
	Opened     = 8
)

// Counts holds the counters of the processes that share one State file.
type Counts struct {
	Calls  map[string]uint64 // by function, and by other counters, such as "bytes_to_host"
	things []thing
}

// thing is something that was created and has not been released, like struct thing in
// driver/state.c.
type thing struct{ Kind, PID, ID, Device, Bytes, Maker, Made uint64 }

// ReadCounts reads the file. Before a process has loaded the driver, everything is zero.
func ReadCounts(t testing.TB, path string) Counts {
	t.Helper()
	counts := Counts{Calls: map[string]uint64{}}
	raw, err := os.ReadFile(path)
	if os.IsNotExist(err) || len(raw) == 0 {
		return counts
	}
	if err != nil {
		t.Fatal(err)
	}
	reader := bytes.NewReader(raw)
	var head struct {
		Magic                      [8]byte
		Functions, Tallies, Things uint64
	}
	read := func(into any) {
		if err := binary.Read(reader, binary.NativeEndian, into); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	read(&head)
	if head.Magic == [8]byte{} {
		return counts
	}
	for range head.Functions + head.Tallies {
		var count struct {
			Name [56]byte
			N    uint64
		}
		read(&count)
		counts.Calls[string(bytes.TrimRight(count.Name[:], "\x00"))] = count.N
	}
	for range head.Things {
		var it thing
		read(&it)
		if it.Kind != 0 {
			counts.things = append(counts.things, it)
		}
	}
	return counts
}

// Live returns the number of things of a kind in live processes.
func (c Counts) Live(kind int) (n int) {
	for _, it := range c.things {
		if it.Kind != uint64(kind) {
			continue
		}
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", it.PID)); err == nil {
			n++
		}
	}
	return n
}
