package budget

import (
	"io/fs"
	"math"
	"testing"
)

func TestGroupLimitIsTheTightest(t *testing.T) {
	const (
		v2 = "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
		v1 = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n32 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
	)
	for _, test := range []struct {
		name, mounts, groups string
		files                map[string]string
		want                 int64
	}{
		{"version 2, the parent is tighter", v2, "0::/a/b\n", map[string]string{
			"/sys/fs/cgroup/a/b/memory.max": "max\n", "/sys/fs/cgroup/a/memory.max": "4096\n", "/sys/fs/cgroup/memory.max": "8192\n",
		}, 4096},
		{"memory.high is where the kernel begins to slow down", v2, "0::/a\n", map[string]string{
			"/sys/fs/cgroup/a/memory.max": "8192\n", "/sys/fs/cgroup/a/memory.high": "6000\n",
		}, 6000},
		{"a name space's root has a limit", v2, "0::/\n", map[string]string{"/sys/fs/cgroup/memory.max": "8192\n"}, 8192},
		{"a group outside the name space", v2, "0::/../c\n", map[string]string{"/sys/fs/cgroup/memory.max": "8192\n"}, 8192},
		{"no limit", v2, "0::/a\n", map[string]string{"/sys/fs/cgroup/a/memory.max": "max\n"}, math.MaxInt64},
		{"version 1, both files", v1, "9:name=systemd:/\n4:memory:/a/b\n0::/\n", map[string]string{
			"/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": "9223372036854771712\n",
			"/sys/fs/cgroup/memory/a/b/memory.stat":           "cache 1\nhierarchical_memory_limit 5000\nhierarchical_memsw_limit 1\n",
			"/sys/fs/cgroup/memory/a/memory.limit_in_bytes":   "7000\n",
		}, 5000},
		{"version 1, the parent's file", v1, "4:cpu,memory:/a/b\n", map[string]string{"/sys/fs/cgroup/memory/a/memory.limit_in_bytes": "7000\n"}, 7000},
		{
			"a container that has its group mounted, under a path from outside",
			"32 31 0:32 /docker/x /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n", "4:memory:/docker/x\n",
			map[string]string{"/sys/fs/cgroup/memory/memory.limit_in_bytes": "700\n", "/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes": "1\n"}, 700,
		},
		{
			"a group below that",
			"32 31 0:32 /docker/x /a\\040b rw - cgroup2 cgroup rw\n", "0::/docker/x/y\n",
			map[string]string{"/a b/y/memory.max": "700\n"}, 700,
		},
		{
			"another container's group is mounted",
			"32 31 0:32 /docker/xy /m rw - cgroup2 cgroup rw\n", "0::/docker/x\n",
			map[string]string{"/m/memory.max": "900\n"}, 900,
		},
		{"neither is mounted", "1 2 3 / /x rw - tmpfs t rw\nbroken\n", "0::/a\n", map[string]string{"/memory.max": "1"}, math.MaxInt64},
		{"rubbish", v2, "\n:\n0::\n", map[string]string{"/sys/fs/cgroup/memory.max": "-5\n"}, math.MaxInt64},
	} {
		files := map[string]string{"/proc/self/cgroup": test.groups, "/proc/self/mountinfo": test.mounts}
		for name, text := range test.files {
			files[name] = text
		}
		read := func(name string) ([]byte, error) {
			if text, ok := files[name]; ok {
				return []byte(text), nil
			}
			return nil, fs.ErrNotExist
		}
		if got := groupLimit(read); got != test.want {
			t.Errorf("%s: got %d, want %d", test.name, got, test.want)
		}
	}
	none := func(string) ([]byte, error) { return nil, fs.ErrPermission }
	if got := groupLimit(none); got != math.MaxInt64 {
		t.Errorf("unreadable: got %d", got)
	}
	if got := Limit(); got <= 0 || got == math.MaxInt64 {
		t.Errorf("here: got %d bytes, want what the machine has", got)
	}
}

// TestTightestGroupIsTheOneWithLeastLeft checks that the group with the least memory left is
// chosen, not the one with the smallest limit. Page cache does not count as used.
func TestTightestGroupIsTheOneWithLeastLeft(t *testing.T) {
	files := map[string]string{
		"/v2/memory.max": "max\n", "/v2/memory.high": "1000\n", "/v2/memory.current": "900\n",
		"/v2/memory.stat":           "anon 200\ninactive_file 300\nactive_file 200\nslab_reclaimable 100\nfile 700\n",
		"/v2/a/memory.max":          "500\n",
		"/v2/a/memory.stat":         "anon 10\ninactive_file 10\n",
		"/v1/memory.stat":           "inactive_file 1\nhierarchical_memory_limit 800\ntotal_inactive_file 40\ntotal_active_file 30\n",
		"/v1/memory.limit_in_bytes": "9223372036854771712\n", "/v1/memory.usage_in_bytes": "650\n",
	}
	read := func(name string) ([]byte, error) {
		if text, ok := files[name]; ok {
			return []byte(text), nil
		}
		return nil, fs.ErrNotExist
	}
	enough := func(limit int64) int64 { return limit / 5 }
	for _, test := range []struct {
		groups      []group
		inner       string // memory.current of /v2/a
		used, limit int64
	}{
		{nil, "", 0, 0},
		{[]group{{2, "/v2", read}}, "", 300, 1000},
		{[]group{{2, "/v2/a", read}, {2, "/v2", read}}, "100", 100, 500},
		{[]group{{2, "/v2", read}, {2, "/v2/a", read}}, "450", 440, 500},
		{[]group{{1, "/v1", read}}, "", 580, 800},
	} {
		files["/v2/a/memory.current"] = test.inner
		if used, limit := tightest(test.groups, enough); used != test.used || limit != test.limit {
			t.Errorf("%v with %q: got %d of %d, want %d of %d", test.groups, test.inner, used, limit, test.used, test.limit)
		}
	}
}
