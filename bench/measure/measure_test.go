package measure_test

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/bench/measure"
)

func TestTimesAddUp(t *testing.T) {
	var all measure.Times
	for _, round := range []measure.Times{
		{Each: []time.Duration{30, 10}, Wall: time.Second, CPU: 8},
		{Each: []time.Duration{40, 20}, Wall: time.Second, CPU: 12},
	} {
		all.Add(round)
	}
	for _, test := range []struct {
		share float64
		want  time.Duration
	}{{0, 10}, {0.5, 30}, {0.99, 40}, {1, 40}} {
		if got := all.Quantile(test.share); got != test.want {
			t.Errorf("Quantile(%v): got %d, want %d", test.share, got, test.want)
		}
	}
	if got := all.Rate(); got != 2 {
		t.Errorf("Rate: got %v, want 2", got)
	}
	if got := all.CPUEach(); got != 5 {
		t.Errorf("CPUEach: got %d, want 5", got)
	}
	var none measure.Times
	if none.Quantile(0.5) != 0 || none.Rate() != 0 || none.CPUEach() != 0 {
		t.Errorf("nothing measured: got %v, %v, %v, want zeros", none.Quantile(0.5), none.Rate(), none.CPUEach())
	}
}

func TestTableAlignsItsColumns(t *testing.T) {
	var table measure.Table
	table.Row("size", "p50", "ratio")
	table.Row("16 B", 1500*time.Nanosecond, 12.34)
	table.Row("1 MiB", 123456*time.Microsecond, 0.5)
	var b strings.Builder
	if err := table.Write(&b); err != nil {
		t.Fatal(err)
	}
	const want = "size      p50  ratio\n16 B     1.50   12.3\n1 MiB  123456   0.50\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

func TestNumbersReadLists(t *testing.T) {
	n := measure.Numbers{1, 2}
	if got := n.String(); got != "1,2" {
		t.Errorf("String: got %q, want %q", got, "1,2")
	}
	if err := n.Set("3,40"); err != nil || !slices.Equal(n, measure.Numbers{3, 40}) {
		t.Errorf("Set 3,40: got %v and error %v", n, err)
	}
	for _, text := range []string{"", "1,", "x", "0", "-1"} {
		if err := n.Set(text); err == nil {
			t.Errorf("Set %q: got no error, want one", text)
		}
	}
}

func TestSizeHasItsUnit(t *testing.T) {
	for n, want := range map[int]string{16: "16 B", 64 << 10: "64 KiB", 16 << 20: "16 MiB", 1500: "1500 B"} {
		if got := measure.Size(n); got != want {
			t.Errorf("Size(%d): got %q, want %q", n, got, want)
		}
	}
}

// TestTreeAndCPU checks that Tree and CPU cover a child process, and that CPU fails for a process
// that has ended.
func TestTreeAndCPU(t *testing.T) {
	child := exec.Command("cat")
	input, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Skipf("no program to start: %v", err)
	}
	tree, err := measure.Tree(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if tree[0] != os.Getpid() || !slices.Contains(tree, child.Process.Pid) {
		t.Errorf("got tree %v, want %d first and %d in it", tree, os.Getpid(), child.Process.Pid)
	}
	before, err := measure.CPU([]int{os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n < 1<<22; n++ {
		sink += n * n
	}
	after, err := measure.CPU([]int{os.Getpid(), child.Process.Pid})
	if err != nil {
		t.Fatal(err)
	}
	if before <= 0 || after <= before {
		t.Errorf("got processor times %v and then %v, want more", before, after)
	}
	_ = input.Close()
	_ = child.Wait()
	if _, err := measure.CPU([]int{child.Process.Pid}); err == nil {
		t.Error("CPU of a process that has ended: got no error, want one")
	}
}

var sink int

// TestSwitchesAreCounted passes a byte back and forth between two threads and expects the count of
// context switches to grow.
func TestSwitchesAreCounted(t *testing.T) {
	here := []int{os.Getpid()}
	before, err := measure.Switches(here)
	if err != nil {
		t.Fatal(err)
	}
	const rounds = 100
	var there, back [2]int
	for _, pipe := range []*[2]int{&there, &back} {
		if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		defer unix.Close(pipe[0])
		defer unix.Close(pipe[1])
	}
	pass := func(from, to int) error {
		var one [1]byte
		for range rounds {
			if _, err := unix.Read(from, one[:]); err != nil {
				return err
			}
			if _, err := unix.Write(to, one[:]); err != nil {
				return err
			}
		}
		return nil
	}
	echoed := make(chan error, 1)
	go func() { echoed <- pass(there[0], back[1]) }()
	if _, err := unix.Write(there[1], []byte{1}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(pass(back[0], there[1]), <-echoed); err != nil {
		t.Fatal(err)
	}
	after, err := measure.Switches(here)
	if err != nil {
		t.Fatal(err)
	}
	// A round does not always cause a switch: on two processors the byte may arrive before a thread
	// blocks.
	if after <= before {
		t.Errorf("got %d switches before and %d after %d rounds, want more", before, after, rounds)
	}
	if n, err := measure.Switches([]int{1 << 27}); n != 0 || err != nil {
		t.Errorf("of a process that is not there: got %d switches and error %v, want none", n, err)
	}
}

func TestTableForAPage(t *testing.T) {
	var table measure.Table
	table.Row("size", "p50")
	table.Row("16 B", 1500*time.Nanosecond)
	var b strings.Builder
	if err := table.WriteMarkdown(&b); err != nil {
		t.Fatal(err)
	}
	if want := "| size | p50 |\n|---|---|\n| 16 B | 1.50 |\n"; b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// TestProcess checks AwaitReady and Stop with a program that ends at the end of its input or on
// SIGTERM.
func TestProcess(t *testing.T) {
	start := func() (*measure.Process, io.Closer) {
		command := exec.Command("cat")
		input, err := command.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		p, err := measure.Start(command)
		if err != nil {
			t.Skipf("no program to start: %v", err)
		}
		return p, input
	}
	p, input := start()
	asked := 0
	if err := p.AwaitReady(time.Minute, func() bool { asked++; return asked == 3 }); err != nil || asked != 3 || p.State() != nil {
		t.Errorf("got error %v after %d questions and the state %v, want it ready at the third, and running", err, asked, p.State())
	}
	if err := p.Stop(time.Minute); err == nil || !strings.Contains(err.Error(), "it ended with signal: terminated") {
		t.Errorf("got error %v, want the signal", err)
	}
	p.Kill() // it has already ended
	_ = input.Close()

	p, input = start()
	_ = input.Close()
	if err := p.AwaitReady(time.Minute, func() bool { return false }); err == nil || !strings.Contains(err.Error(), "it ended before it was ready: exit status 0") {
		t.Errorf("got error %v, want its end", err)
	}
	if err := p.Stop(time.Minute); err != nil {
		t.Errorf("got error %v for a program that had ended with success, want none", err)
	}
}
