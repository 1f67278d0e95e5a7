package budget

import (
	"bytes"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Limit returns the bytes that this process and its children may use: the tightest limit of the
// control groups around it, of both versions, or the machine's memory.
func Limit() int64 {
	limit := int64(math.MaxInt64)
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		limit = int64(info.Totalram) * int64(info.Unit)
	}
	return min(limit, groupLimit(os.ReadFile))
}

// InGroup reports whether a control group limits the memory of this process and its children.
func InGroup() bool { return groupLimit(os.ReadFile) < math.MaxInt64 }

// hierarchy is a mounted tree of control groups that limits memory.
type hierarchy struct {
	version int
	mount   string // mount point
	root    string // the group at the mount point
}

// groupLimit returns the tightest limit of this process's groups.
func groupLimit(read func(string) ([]byte, error)) int64 {
	limit := int64(math.MaxInt64)
	for _, g := range groups(read) {
		limit = min(limit, g.limit())
	}
	return limit
}

// group is a control group around this process.
type group struct {
	version int
	dir     string
	read    func(string) ([]byte, error)
}

// groups returns the control groups around this process that are mounted.
func groups(read func(string) ([]byte, error)) (all []group) {
	membership, err := read("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	mounts, err := read("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	for _, h := range hierarchies(mounts) {
		name, ok := groupOf(membership, h.version)
		if !ok {
			continue
		}
		for dir := h.directory(name); ; dir = path.Dir(dir) {
			all = append(all, group{h.version, dir, read}) // bound: the depth of the tree
			if dir == h.mount || dir == "/" {
				break
			}
		}
	}
	return all
}

// tightest returns the use and the limit of the group with least memory left; 0 and 0 without
// groups. Files in the page cache, which the kernel drops before it kills, do not count as used.
// They are read only if less than enough would be left with them.
func tightest(all []group, enough func(limit int64) int64) (used, limit int64) {
	for _, g := range all {
		most, now := g.limit(), g.used()
		if most-now < enough(most) {
			now -= g.reclaimable()
		}
		if limit == 0 || most-now < limit-used {
			used, limit = now, most
		}
	}
	return used, limit
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

// unescape decodes the octal escapes of mountinfo for spaces and similar characters.
func unescape(text string) string {
	for _, pair := range [...][2]string{{`\040`, " "}, {`\011`, "\t"}, {`\012`, "\n"}, {`\134`, `\`}} {
		text = strings.ReplaceAll(text, pair[0], pair[1])
	}
	return text
}

// groupOf returns the group of /proc/self/cgroup in the hierarchy of a version.
func groupOf(membership []byte, version int) (string, bool) {
	for line := range strings.Lines(string(membership)) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) == 3 && (version == 2 && parts[0] == "0" && parts[1] == "" || version == 1 && listed(parts[1], "memory")) {
			return parts[2], true
		}
	}
	return "", false
}

// directory returns the directory of a group's files, or that of the closest mounted group around
// it. In a namespace, groups outside begin with "/.."; in a container with its own group mounted,
// the path starts from a root that does not exist there.
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

// limit returns the limit of the group itself. In version 1 it includes the groups around it, even
// if they are not mounted.
func (g *group) limit() int64 {
	limit := int64(math.MaxInt64)
	note := func(n int64) {
		if n > 0 && n < 1<<60 { // version 1 uses larger numbers for "no limit"
			limit = min(limit, n)
		}
	}
	if g.version == 1 {
		note(g.stat("hierarchical_memory_limit"))
		note(g.number("memory.limit_in_bytes"))
	} else {
		note(g.number("memory.max"))
		note(g.number("memory.high"))
	}
	return limit
}

// used returns the group's memory, including files in the page cache.
func (g *group) used() int64 {
	if g.version == 1 {
		return g.number("memory.usage_in_bytes")
	}
	return g.number("memory.current")
}

// reclaimable returns the part of the group's memory that the kernel can drop.
func (g *group) reclaimable() int64 {
	if g.version == 1 {
		return g.stat("total_inactive_file", "total_active_file")
	}
	return g.stat("inactive_file", "active_file", "slab_reclaimable")
}

// number reads a file with one number; 0 without the file.
func (g *group) number(name string) int64 {
	text, err := g.read(path.Join(g.dir, name))
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64) // "max" means no limit
	return n
}

// stat returns the sum of lines of memory.stat.
func (g *group) stat(names ...string) (sum int64) {
	text, err := g.read(path.Join(g.dir, "memory.stat"))
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(text) {
		name, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		if slices.Contains(names, string(name)) {
			n, _ := strconv.ParseInt(string(value), 10, 64)
			sum += n
		}
	}
	return sum
}
