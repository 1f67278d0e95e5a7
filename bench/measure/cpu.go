package measure

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// cpuClock is the kernel's CPUCLOCK_SCHED: all time that a process has run.
const cpuClock = 2

// CPU returns the processor time that the processes have used so far. A process
// that has ended is an error.
func CPU(pids []int) (time.Duration, error) {
	var total time.Duration
	for _, pid := range pids {
		var ts unix.Timespec
		// The clock of another process, as clock_getcpuclockid(3) makes its number.
		if err := unix.ClockGettime(int32(^pid<<3|cpuClock), &ts); err != nil {
			return 0, fmt.Errorf("read processor time of process %d: %w", pid, err)
		}
		total += time.Duration(ts.Nano())
	}
	return total, nil
}

// Tree returns a process and all its descendants.
func Tree(root int) ([]int, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	children := make(map[int][]int)
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended meanwhile
		}
		// pid (name) state parent …, where the name may hold anything.
		end := bytes.LastIndexByte(text, ')')
		fields := bytes.Fields(text[end+1:])
		if end < 0 || len(fields) < 2 {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			return nil, err
		}
		parent, err := strconv.Atoi(string(fields[1]))
		if err != nil {
			return nil, fmt.Errorf("parent of process %d: %w", pid, err)
		}
		children[parent] = append(children[parent], pid)
	}
	tree := []int{root}
	for i := 0; i < len(tree); i++ {
		tree = append(tree, children[tree[i]]...)
	}
	return tree, nil
}
