package shm

import (
	"bytes"
	"math"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// MemoryLimit returns the bytes that this process may use: the tightest limit of
// its control groups (version 2), or the machine's memory.
func MemoryLimit() int64 {
	limit := int64(math.MaxInt64)
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		limit = int64(info.Totalram) * int64(info.Unit)
	}
	membership, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return limit
	}
	return min(limit, groupLimit(os.ReadFile, membership))
}

// groupLimit returns the tightest memory.max from the group that membership (the
// text of /proc/self/cgroup) names up to the root.
func groupLimit(read func(string) ([]byte, error), membership []byte) int64 {
	limit := int64(math.MaxInt64)
	for line := range strings.Lines(string(membership)) {
		group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue
		}
		for dir := path.Clean("/" + group); ; dir = path.Dir(dir) {
			if text, err := read(path.Join("/sys/fs/cgroup", dir, "memory.max")); err == nil {
				if n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64); err == nil {
					limit = min(limit, n)
				}
			}
			if dir == "/" {
				break
			}
		}
	}
	return limit
}
