package process

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/backend"
	"github.com/nereid-serving/nereid/metrics"
)

var _ backend.MemoryReporter = (*Model)(nil)

// Processes returns what the processes of all instances take that have been told to
// initialize. A process that ends meanwhile is left out.
func (s *Supervisor) Processes() []metrics.Process {
	lives, list := s.present(nil)
	kept := list[:0]
	for i, l := range lives {
		// The file is that of this process if it had not been reaped before and after.
		cpu, resident, err := UsageOf(l.process.PID())
		select {
		case <-l.exited:
			continue
		default:
		}
		if err != nil {
			continue
		}
		one := list[i]
		one.CPU, one.Resident = cpu, resident
		kept = append(kept, one)
	}
	return kept
}

// ReportMemory implements backend.MemoryReporter: the shared memory that is real for
// outputs of the model's processes, and what these say themselves that they keep.
func (m *Model) ReportMemory() (bytes int64) {
	lives, list := m.supervisor.present(m)
	for i := range list {
		bytes += list[i].Arena
	}
	for _, l := range lives {
		bytes += l.calls.Memory()
	}
	return bytes
}

// present returns the lives of a model, or of all, with the bytes of their arenas. A
// life leaves the set before it closes its channel, so the files are open while mu is
// held; /proc is read without it.
func (s *Supervisor) present(of *Model) ([]*life, []metrics.Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lives []*life
	var list []metrics.Process
	for l := range s.lives {
		in := l.in
		if of != nil && in.model != of {
			continue
		}
		lives = append(lives, l)
		list = append(list, metrics.Process{
			Model: in.model.env.Name, Namespace: in.model.env.Namespace, Version: in.model.env.Version, Instance: in.name, Device: in.gpu,
			Arena: l.channel.UpBytes(), Lent: int64(l.lent.Bytes()), Holds: l.quota.usage(),
		})
	}
	return lives, list
}

// ticks is how many units of /proc/PID/stat make a second (USER_HZ), on every machine.
const ticks = 100

// UsageOf reads what a process takes from /proc/PID/stat (proc(5)).
func UsageOf(pid int) (cpu time.Duration, resident int64, err error) {
	path := "/proc/" + strconv.Itoa(pid) + "/stat"
	// Without package os, which asks the kernel about each file it opens: a page of metrics reads one for
	// each instance.
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, 0, &os.PathError{Op: "open", Path: path, Err: err}
	}
	var text [2 << 10]byte // some 50 numbers and a name of 64 bytes at most
	n, err := unix.Read(fd, text[:])
	_ = unix.Close(fd)
	if err != nil {
		return 0, 0, &os.PathError{Op: "read", Path: path, Err: err}
	}
	return parseUsage(text[:n])
}

// parseUsage reads the fields utime, stime and rss. The name of the program stands in
// parentheses before them and may have spaces and parentheses itself.
func parseUsage(stat []byte) (cpu time.Duration, resident int64, err error) {
	const utime, stime, rss = 14 - 3, 15 - 3, 24 - 3 // as proc(5) counts, which calls the first behind the name 3
	var numbers [3]int64
	at := 0
	for field := range bytes.FieldsSeq(stat[bytes.LastIndexByte(stat, ')')+1:]) {
		switch at {
		case utime:
			numbers[0], err = strconv.ParseInt(string(field), 10, 64)
		case stime:
			numbers[1], err = strconv.ParseInt(string(field), 10, 64)
		case rss:
			numbers[2], err = strconv.ParseInt(string(field), 10, 64)
		}
		if err != nil {
			return 0, 0, err
		}
		if at++; at > rss {
			break
		}
	}
	if at <= rss {
		return 0, 0, fmt.Errorf("stat has %d fields behind the name, want more than %d", at, rss)
	}
	return time.Duration(numbers[0]+numbers[1]) * (time.Second / ticks), numbers[2] * int64(os.Getpagesize()), nil
}
