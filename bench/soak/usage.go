package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nereid-serving/nereid/bench/measure"
	"golang.org/x/sys/unix"
)

// usage is a snapshot of the server's resources.
type usage struct {
	resident    int64 // resident bytes of the server's process, without shared files
	shared      int64 // bytes of memory files among its descriptors
	descriptors int   // of the server's process
	processes   int   // below it; at rest, all of its descendants
	group       int64 // bytes of its control group that cannot be reclaimed
	serving     int64 // of the baseline: resident while good clients alone asked
	uncharged   int64 // bytes of the server that are not charged; sampled for the maximum only
}

func (u usage) String() string {
	text := fmt.Sprintf("RSS %s, shared memory %s, %d descriptors, %d processes", mib(u.resident), mib(u.shared), u.descriptors, u.processes)
	if u.group > 0 {
		text += ", control group " + mib(u.group)
	}
	if u.uncharged > 0 {
		text += ", " + mib(u.uncharged) + " that nobody was charged for"
	}
	return text
}

func mib(n int64) string { return strconv.FormatInt((n+1<<19)>>20, 10) + " MiB" }

// sample measures the server and keeps the maximum of each figure.
func (v *server) sample() usage {
	u := v.look()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.most.resident, v.most.shared = max(v.most.resident, u.resident), max(v.most.shared, u.shared)
	v.most.descriptors, v.most.processes = max(v.most.descriptors, u.descriptors), max(v.most.processes, u.processes)
	v.most.group = max(v.most.group, u.group)
	return u
}

func (v *server) peak() usage {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.most
}

func (v *server) look() (u usage) {
	proc := fmt.Sprintf("/proc/%d/", v.PID())
	status, _ := os.ReadFile(proc + "status")
	for line := range strings.Lines(string(status)) {
		name, rest, _ := strings.Cut(line, ":")
		if name == "RssAnon" || name == "RssFile" {
			kib, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			u.resident += kib << 10
		}
	}
	files := map[uint64]bool{}
	entries, _ := os.ReadDir(proc + "fd")
	u.descriptors = len(entries)
	for _, e := range entries {
		path := proc + "fd/" + e.Name()
		target, err := os.Readlink(path)
		if err != nil || !strings.HasPrefix(target, "/memfd:") && !strings.HasPrefix(target, "/dev/shm/") {
			continue
		}
		var st unix.Stat_t
		if unix.Stat(path, &st) == nil && !files[st.Ino] {
			files[st.Ino] = true
			u.shared += st.Blocks * 512
		}
	}
	if tree, err := measure.Tree(v.PID()); err == nil {
		u.processes = len(tree) - 1
	}
	if v.group != nil {
		u.group = v.group.used()
	}
	return u
}

// Bounds on the growth of a server at rest.
const (
	sharedBound      = 8 << 20
	descriptorsBound = 8
)

// returnLimit is how long it may take to return memory to the system. The memory of the server and
// its models must fall below one and a half times the baseline.
const returnLimit = 30 * time.Second

// within reports whether a server at rest has released its memory.
func (u usage) within(before usage) bool {
	return u.resident < before.serving+before.serving/2 && u.group <= before.group+before.group/2 && u.shared <= before.shared+sharedBound &&
		u.descriptors <= before.descriptors+descriptorsBound && u.processes == before.processes
}

// compare records how far the server's memory exceeds its charges.
func (v *server) compare() {
	c, err := v.counters()
	if err != nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.most.uncharged = max(v.most.uncharged, int64(c["nereid_memory_real_bytes"]-c["nereid_memory_bytes"]))
}

// rest returns the server to its initial models and instances and measures it, once it is within
// the bounds or patience has run out.
func (v *server) rest(ctx context.Context, before *usage) (usage, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	var errs []error
	changes := [][2]string{
		{"/v2/repository/models/identity/instances", `{"count":2}`},
		{"/v2/repository/models/doubles/instances", `{"count":2}`},
	}
	for _, model := range append([]string{"moves", "hangs"}, lures...) {
		changes = append(changes, [2]string{"/v2/repository/models/" + model + "/unload", ""})
	}
	for _, change := range changes {
		if status, text, err := v.post(ctx, change[0], change[1]); err != nil || status != http.StatusOK {
			errs = append(errs, fmt.Errorf("%s: status %d, %s, %w", change[0], status, text, err))
		}
	}
	for _, model := range steadyModels {
		ready := false
		for deadline := time.Now().Add(patience); !ready && time.Now().Before(deadline) && ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
			status, _, err := v.get(ctx, "/v2/models/"+model+"/ready")
			ready = err == nil && status == http.StatusOK
			select {
			case <-v.Ended():
				return usage{}, errors.New("the server has ended")
			default:
			}
		}
		if !ready {
			errs = append(errs, fmt.Errorf("model %s is not ready %v after the clients have gone", model, patience))
		}
	}
	limit := time.Now().Add(returnLimit)
	if before == nil {
		limit = time.Now().Add(10 * time.Second) // the server returns idle memory within seconds
	}
	for {
		u := v.look()
		u.processes = len(v.markedProcesses()) - 1
		if before != nil && u.within(*before) || time.Now().After(limit) {
			return u, errors.Join(errs...)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// counters returns the server's own metrics, summed over their labels.
func (v *server) counters() (map[string]float64, error) {
	status, text, err := ask(context.Background(), http.MethodGet, "http://"+v.metrics+"/metrics", "")
	if err != nil || status != http.StatusOK {
		return nil, fmt.Errorf("read the metrics: status %d, %w", status, err)
	}
	sums := map[string]float64{}
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		line := lines.Text()
		if !strings.HasPrefix(line, "nereid_") {
			continue
		}
		name, _, _ := strings.Cut(line, "{")
		name, _, _ = strings.Cut(name, " ")
		value, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err == nil {
			sums[name] += value
		}
	}
	return sums, nil
}

// group is a control group of the memory controller, version 1 or 2.
type group struct {
	path string
	v2   bool
}

// makeGroup creates a group beside or below our own.
func makeGroup(limit int64) (*group, error) {
	name := fmt.Sprintf("nereid-soak-%d", os.Getpid())
	g := &group{path: filepath.Join("/sys/fs/cgroup", name), v2: true}
	file := "memory.max"
	if _, err := os.Stat("/sys/fs/cgroup/memory"); err == nil {
		g.path, g.v2, file = filepath.Join("/sys/fs/cgroup/memory", name), false, "memory.limit_in_bytes"
	}
	if err := os.Mkdir(g.path, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(g.path, file), []byte(strconv.FormatInt(limit, 10)), 0o644); err != nil {
		g.remove()
		return nil, err
	}
	return g, nil
}

func (g *group) processes() string { return filepath.Join(g.path, "cgroup.procs") }

// used returns the memory of its processes without file pages, which the kernel can reclaim.
func (g *group) used() int64 {
	stat := readNumbers(filepath.Join(g.path, "memory.stat"))
	if g.v2 {
		return stat["anon"] + stat["shmem"]
	}
	return stat["total_rss"] + stat["total_shmem"]
}

// kills returns how many processes the kernel has killed because of a lack of memory; without a
// group, none.
func (g *group) kills() int64 {
	if g == nil {
		return 0
	}
	if g.v2 {
		return readNumbers(filepath.Join(g.path, "memory.events"))["oom_kill"]
	}
	return readNumbers(filepath.Join(g.path, "memory.oom_control"))["oom_kill"]
}

func (g *group) remove() {
	for range 50 {
		if err := os.Remove(g.path); err == nil || errors.Is(err, os.ErrNotExist) {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// readNumbers reads lines that consist of a name and a number.
func readNumbers(path string) map[string]int64 {
	numbers := map[string]int64{}
	text, _ := os.ReadFile(path)
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 2 {
			numbers[fields[0]], _ = strconv.ParseInt(fields[1], 10, 64)
		}
	}
	return numbers
}
