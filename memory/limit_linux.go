package memory

import (
	"bytes"
	"math"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Limit returns the bytes that this process and its children may use: the
// tightest limit of the control groups around it, of both versions, or the
// machine's memory.
func Limit() int64 {
	limit := int64(math.MaxInt64)
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		limit = int64(info.Totalram) * int64(info.Unit)
	}
	return min(limit, groupLimit(os.ReadFile))
}

// hierarchy is a mounted tree of control groups that limits memory.
type hierarchy struct {
	version int
	mount   string // where it is mounted
	root    string // which group that is
}

// groupLimit returns the tightest limit of the groups that this process is in.
func groupLimit(read func(string) ([]byte, error)) int64 {
	limit := int64(math.MaxInt64)
	membership, err := read("/proc/self/cgroup")
	if err != nil {
		return limit
	}
	mounts, err := read("/proc/self/mountinfo")
	if err != nil {
		return limit
	}
	for _, h := range hierarchies(mounts) {
		group, ok := groupOf(membership, h.version)
		if !ok {
			continue
		}
		for dir := h.directory(group); ; dir = path.Dir(dir) {
			limit = min(limit, h.limitOf(read, dir))
			if dir == h.mount || dir == "/" {
				break
			}
		}
	}
	return limit
}

// hierarchies reads /proc/self/mountinfo (proc(5)).
func hierarchies(mounts []byte) []hierarchy {
	var all []hierarchy
	for line := range strings.Lines(string(mounts)) {
		left, right, ok := strings.Cut(line, " - ")
		fields, kind := strings.Fields(left), strings.Fields(right)
		if !ok || len(fields) < 5 || len(kind) < 3 {
			continue
		}
		h := hierarchy{mount: unescape(fields[4]), root: unescape(fields[3])}
		switch {
		case kind[0] == "cgroup2":
			h.version = 2
		case kind[0] == "cgroup" && listed(kind[2], "memory"):
			h.version = 1
		default:
			continue
		}
		all = append(all, h)
	}
	return all
}

func listed(list, name string) bool {
	for one := range strings.SplitSeq(list, ",") {
		if one == name {
			return true
		}
	}
	return false
}

// unescape reads the octal escapes that mountinfo has for spaces and the like.
func unescape(text string) string {
	for _, pair := range [...][2]string{{`\040`, " "}, {`\011`, "\t"}, {`\012`, "\n"}, {`\134`, `\`}} {
		text = strings.ReplaceAll(text, pair[0], pair[1])
	}
	return text
}

// groupOf finds in /proc/self/cgroup the group in the hierarchy of a version.
func groupOf(membership []byte, version int) (string, bool) {
	for line := range strings.Lines(string(membership)) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) == 3 && (version == 2 && parts[0] == "0" && parts[1] == "" || version == 1 && listed(parts[1], "memory")) {
			return parts[2], true
		}
	}
	return "", false
}

// directory returns where a group's files are, or those of the closest group
// around it that is mounted. In a namespace, groups outside begin with "/..";
// where a container has its own group mounted, the path names it from a root that
// is not there.
func (h *hierarchy) directory(group string) string {
	group = path.Clean("/" + group)
	if h.root != "/" && !strings.HasPrefix(h.root, "/..") {
		inside, ok := strings.CutPrefix(group, h.root)
		if !ok || inside != "" && inside[0] != '/' {
			return h.mount
		}
		group = inside
	}
	return path.Join(h.mount, group)
}

// limitOf returns the limit of the group in dir alone, and in version 1 of those
// around it, too, even where they are not mounted.
func (h *hierarchy) limitOf(read func(string) ([]byte, error), dir string) int64 {
	limit := int64(math.MaxInt64)
	note := func(text []byte) {
		if n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64); err == nil && n > 0 {
			limit = min(limit, n)
		}
	}
	names := [...]string{"memory.max", "memory.high"}
	if h.version == 1 {
		names = [...]string{"memory.limit_in_bytes", ""}
		if text, err := read(path.Join(dir, "memory.stat")); err == nil {
			for line := range bytes.Lines(text) {
				if n, ok := bytes.CutPrefix(line, []byte("hierarchical_memory_limit ")); ok {
					note(n)
				}
			}
		}
	}
	for _, name := range names {
		if name == "" {
			continue
		}
		if text, err := read(path.Join(dir, name)); err == nil {
			note(text)
		}
	}
	return limit
}
