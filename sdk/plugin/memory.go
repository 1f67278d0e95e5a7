package plugin

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
)

// ballastBytes count as memory in use, although none of their pages is ever touched. They let a
// small heap grow by as much before the garbage collector runs. Requests leave a few KB of garbage
// each, so without ballast a plugin would collect hundreds of times per second.
const ballastBytes = 8 << 20

// limitMemory makes the garbage collector work harder before this process's cgroup runs out of
// memory. GOMEMLIMIT takes precedence.
func limitMemory() {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	membership, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return
	}
	if most := cgroupLimit("/sys/fs/cgroup", string(membership)); most > 0 {
		debug.SetMemoryLimit(most / 10 * 9)
	}
}

// cgroupLimit returns the lowest memory.max of a process's cgroup (version 2) and its ancestors, or
// 0.
func cgroupLimit(root, membership string) (most int64) {
	for line := range strings.Lines(membership) {
		group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue
		}
		for group = filepath.Clean("/" + group); ; group = filepath.Dir(group) {
			if text, err := os.ReadFile(filepath.Join(root, group, "memory.max")); err == nil {
				if n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64); err == nil && n > 0 && (most == 0 || n < most) {
					most = n
				}
			}
			if group == "/" {
				break
			}
		}
	}
	return most
}
