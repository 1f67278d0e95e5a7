package main

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/bench/measure"
)

// bells are the two pipes of the ping-pong; this process has one end of each.
type bells struct {
	in, out int
}

// ping rings and waits for the answer with blocking calls: the least work with which two processes
// can notify each other and sleep in between.
func (b bells) ping() error {
	one := [1]byte{1}
	if _, err := unix.Write(b.out, one[:]); err != nil {
		return err
	}
	n, err := unix.Read(b.in, one[:])
	if err == nil && n == 0 {
		err = io.EOF
	}
	return err
}

// echo answers each ring on descriptor 3 with one on descriptor 4, until the other side closes.
func echo() error {
	runtime.LockOSThread()
	var one [1]byte
	for {
		n, err := unix.Read(3, one[:])
		if err != nil || n == 0 {
			return err
		}
		if _, err := unix.Write(4, one[:]); err != nil {
			return err
		}
	}
}

// pingPong measures round trips with a second process.
func pingPong(span time.Duration) (measure.Times, error) {
	var there, back [2]int
	for _, pipe := range []*[2]int{&there, &back} {
		if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
			return measure.Times{}, fmt.Errorf("make a pipe: %w", err)
		}
	}
	defer unix.Close(back[0])
	far := []*os.File{os.NewFile(uintptr(there[0]), "there"), os.NewFile(uintptr(back[1]), "back")}
	other := exec.Command(os.Args[0], "-echo")
	other.ExtraFiles = far
	other.Stderr = os.Stderr
	err := other.Start()
	for _, file := range far {
		_ = file.Close()
	}
	if err != nil {
		_ = unix.Close(there[1])
		return measure.Times{}, fmt.Errorf("start the other end: %w", err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	times, err := measure.WarmRounds(span, []int{os.Getpid(), other.Process.Pid}, bells{in: back[0], out: there[1]}.ping)
	_ = unix.Close(there[1])
	return times, errors.Join(err, other.Wait())
}

// copying measures copies of n bytes between warm buffers.
func copying(span time.Duration, n int) (measure.Times, error) {
	from, to := make([]byte, n), make([]byte, n)
	for i := range from {
		from[i] = byte(i)
	}
	return measure.WarmRounds(span, []int{os.Getpid()}, func() error {
		copy(to, from)
		return nil
	})
}

//go:embed floor/pingpong.c
var pingPongSource string

// floors are ping-pongs between two processes: two of this program, over the pipes that the rings
// use as bells, and two in C, which are left out if the machine has no C compiler.
type floors struct {
	program              string // of the ping-pong in C, or ""
	here                 nativeRow
	pipes, futex, yields nativeRow
}

// compile compiles the C program in a folder that the caller removes.
func (f *floors) compile(directory string) error {
	compiler, err := exec.LookPath("cc")
	if err != nil {
		return nil
	}
	source := filepath.Join(directory, "pingpong.c")
	if err := os.WriteFile(source, []byte(pingPongSource), 0o600); err != nil {
		return err
	}
	program := filepath.Join(directory, "pingpong")
	if output, err := exec.Command(compiler, "-O2", "-o", program, source).CombinedOutput(); err != nil {
		return fmt.Errorf("compile the ping-pong in C: %w: %s", err, output)
	}
	f.program = program
	return nil
}

// measure measures each in turn for span, and keeps the better result.
func (f *floors) measure(span time.Duration) (err error) {
	ping, err := pingPong(span)
	if err != nil {
		return fmt.Errorf("ping-pong: %w", err)
	}
	f.here.best(nativeRow{p50: ping.Quantile(0.5), p99: ping.Quantile(0.99), cpu: ping.CPUEach(), switches: ping.SwitchesEach()})
	if f.program == "" {
		return nil
	}
	for _, way := range []struct {
		name string
		into *nativeRow
	}{{"pipes", &f.pipes}, {"futex", &f.futex}, {"yields", &f.yields}} {
		output, err := exec.Command(f.program, way.name, fmt.Sprint(span.Seconds())).Output()
		if err != nil {
			return fmt.Errorf("ping-pong in C by %s: %w", way.name, err)
		}
		var p50, p99, cpu, thousandths int64
		if _, err := fmt.Sscan(string(output), &p50, &p99, &cpu, &thousandths); err != nil {
			return fmt.Errorf("the ping-pong in C printed %q, want four numbers: %w", output, err)
		}
		way.into.best(nativeRow{
			p50: time.Duration(p50), p99: time.Duration(p99), cpu: time.Duration(cpu), switches: float64(thousandths) / 1000,
		})
	}
	return nil
}

// table adds the rows of the measured ping-pongs.
func (f *floors) table(to *measure.Table) {
	to.Row(f.here.cells("ping-pong in Go, pipes")...)
	if f.futex.p50 == 0 {
		return
	}
	to.Row(f.pipes.cells("ping-pong in C, pipes")...)
	to.Row(f.futex.cells("ping-pong in C, a futex")...)
	to.Row(f.yields.cells("ping-pong in C, yields")...)
}

// ratios divides a time by the times of the three ping-pongs: two sleep, one polls and yields.
func (f *floors) ratios(t time.Duration) []any {
	ratios := []any{float64(t) / float64(f.here.p50), "", ""}
	if f.futex.p50 != 0 {
		ratios[1], ratios[2] = float64(t)/float64(f.futex.p50), float64(t)/float64(f.yields.p50)
	}
	return ratios
}
