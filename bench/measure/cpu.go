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

// cpuClock is the kernel's CPUCLOCK_SCHED, the total run time of a process.
const cpuClock = 2

// CPU returns the processor time that the processes have used so far. It fails if a process has
// ended.
func CPU(pids []int) (time.Duration, error) {
	var total time.Duration
	for _, pid := range pids {
		var ts unix.Timespec
		// The clock of another process, numbered as in clock_getcpuclockid(3).
		if err := unix.ClockGettime(int32(^pid<<3|cpuClock), &ts); err != nil {
			return 0, fmt.Errorf("read processor time of process %d: %w", pid, err)
		}
		total += time.Duration(ts.Nano())
	}
	return total, nil
}

// Switches returns the number of context switches of the processes' threads, voluntary or not.
// Threads that have ended do not count.
func Switches(pids []int) (int, error) {
	total := 0
	for _, pid := range pids {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
		if err != nil {
			return 0, err
		}
		for _, path := range tasks {
			text, err := os.ReadFile(path)
			if err != nil {
				continue // the thread has ended meanwhile
			}
			for line := range bytes.Lines(text) {
				name, value, _ := bytes.Cut(line, []byte(":"))
				if !bytes.HasSuffix(name, []byte("voluntary_ctxt_switches")) {
					continue
				}
				n, err := strconv.Atoi(string(bytes.TrimSpace(value)))
				if err != nil {
					return 0, fmt.Errorf("%s: %w", path, err)
				}
				total += n
			}
		}
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
		// The format is: pid (name) state parent …. The name may contain any character.
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
