package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/bench/measure"
)

// bells are the two pipes of the ping-pong, of which this process has an end each.
type bells struct {
	in, out int
}

// ping rings and waits for the answer, in blocking calls: the least that two
// processes can do to tell each other something and sleep in between.
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

// echo answers each ring on descriptor 3 with one on descriptor 4, until the
// other side closes.
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

// copying measures copies of n bytes between buffers that are warm.
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
