package faults

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// regionKinds are the system calls of a registration, of a mapping by a stub, and of a copy.
var regionKinds = []struct {
	call   string
	errnos []string
}{
	{"openat", []string{"EMFILE", "ENOMEM", "EACCES"}},
	{"fstat", []string{"ENOMEM", "EIO"}},
	{"mmap", []string{"ENOMEM", "EAGAIN"}},
	{"sendmsg", []string{"ENOBUFS", "EAGAIN", "ETOOMANYREFS", "EPIPE"}},
	{"pread64", []string{"EIO", "ENOMEM"}},
	{"socketpair", []string{"EMFILE", "ENOMEM"}}, // made by a restart
}

// regionBytes is the size of the input at the beginning of the test's region, and of the output
// after it.
const regionBytes = 256 << 10

// region is a client's shared-memory file.
type region struct {
	s    *server
	file *os.File
	last byte
}

func newRegion(s *server) *region {
	file, err := os.CreateTemp("/dev/shm", "nereid-faults-")
	if err != nil {
		s.t.Skip(err)
	}
	r := &region{s: s, file: file}
	s.t.Cleanup(func() {
		_ = os.Remove(file.Name())
		_ = file.Close()
	})
	if err := file.Truncate(2 * regionBytes); err != nil {
		s.t.Fatal(err)
	}
	return r
}

func (r *region) register() (status int, reply string) {
	return r.s.call(http.MethodPost, "/v2/systemsharedmemory/region/r/register",
		fmt.Sprintf(`{"key":"/%s","offset":0,"byte_size":%d}`, filepath.Base(r.file.Name()), 2*regionBytes))
}

func (r *region) unregister() (status int, reply string) {
	return r.s.call(http.MethodPost, "/v2/systemsharedmemory/region/r/unregister", "")
}

// infer sends an input in the region to the model and requests the output in the region. It checks
// the output of a successful request.
func (r *region) infer() (status int, reply string) {
	r.s.t.Helper()
	r.last++
	want := bytes.Repeat([]byte{r.last}, regionBytes)
	if _, err := r.file.WriteAt(want, 0); err != nil {
		r.s.t.Fatal(err)
	}
	status, reply = r.s.call(http.MethodPost, "/v2/models/m/infer", fmt.Sprintf(
		`{"inputs":[{"name":"IN","datatype":"UINT8","shape":[%[1]d],"parameters":{"shared_memory_region":"r","shared_memory_byte_size":%[1]d}}],`+
			`"outputs":[{"name":"OUT","parameters":{"shared_memory_region":"r","shared_memory_offset":%[1]d,"shared_memory_byte_size":%[1]d}}]}`, regionBytes))
	got := make([]byte, regionBytes)
	if _, err := r.file.ReadAt(got, regionBytes); err != nil {
		r.s.t.Fatal(err)
	}
	switch {
	case status == http.StatusOK && !bytes.Equal(got, want):
		r.s.t.Errorf("the output begins with %d, want %d", got[0], r.last)
	case status != http.StatusOK && !strings.Contains(reply, `"error":`):
		r.s.t.Errorf("got %d %q, want an error that says why", status, reply)
	}
	return status, reply
}

// inStub returns the number of mappings and descriptors of the region in the model's stub.
func (r *region) inStub() (mappings, files int) {
	pid := r.s.stub()
	maps, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	folder := fmt.Sprintf("/proc/%d/fd", pid)
	entries, _ := os.ReadDir(folder)
	for _, entry := range entries {
		if to, err := os.Readlink(filepath.Join(folder, entry.Name())); err == nil && strings.HasPrefix(to, r.file.Name()) {
			files++
		}
	}
	return strings.Count(string(maps), r.file.Name()), files
}

// use registers the region, sends requests that use it, and unregisters it. Failures must be
// reported to the client.
func (r *region) use() {
	r.register()
	for range 10 {
		r.infer()
		if mappings, _ := r.inStub(); mappings == 2 { // one for inputs and one for outputs
			break
		}
	}
	r.unregister()
}

// works waits until the region is mapped for inputs and outputs, and until nothing is left of it
// after it is unregistered.
func (r *region) works(after string) {
	r.s.t.Helper()
	var status int
	var reply string
	want := func(what string, ok func() bool) {
		r.s.t.Helper()
		if !testkit.Within(patience, ok) {
			r.s.t.Fatalf("after %s: %s: got %d %s for good; log:\n%s", after, what, status, reply, last(r.s.text()))
		}
	}
	want("register", func() bool { status, reply = r.register(); return status == http.StatusOK })
	want("a mapping of both kinds", func() bool {
		status, reply = r.infer()
		mappings, _ := r.inStub()
		return status == http.StatusOK && mappings == 2
	})
	status, reply = r.infer()
	want("unregister", func() bool { status, reply = r.unregister(); return status == http.StatusOK })
	want("no mapping", func() bool { mappings, files := r.inStub(); return mappings == 0 && files == 0 })
}

// TestFaultsOfClientsRegions makes each system call of a registration and of a mapping fail in
// turn, also while the model's stub restarts. The client must get an error, or its tensors must be
// copied. The server and the stub must survive and hold no more resources than before.
func TestFaultsOfClientsRegions(t *testing.T) {
	var calls []string
	for _, k := range regionKinds {
		calls = append(calls, k.call)
	}
	s := launchWith(t, []string{"--allow-client-shm=true"}, calls)
	s.works("start")
	r := newRegion(s)
	operations := []struct {
		name  string
		calls string // the calls to fail; calls of a restart are covered by other tests
		run   func()
	}{
		{"registration", "openat fstat mmap", func() { r.register(); r.unregister() }},
		{"mapping", "openat fstat sendmsg pread64", r.use},
		{"restart", "socketpair", func() {
			if status, reply := r.register(); status != http.StatusOK && !strings.Contains(reply, `"error":`) {
				t.Errorf("got %d %q, want an error that says why", status, reply)
			}
			s.kill()
			s.infer(8)
			r.use()
		}},
	}
	for _, o := range operations { // the first run creates everything that is created once
		o.run()
		r.works(o.name)
	}
	before := s.holds()
	hit := map[string]int{}
	for _, o := range operations {
		for _, k := range regionKinds {
			if !slices.Contains(strings.Fields(o.calls), k.call) {
				continue
			}
			for i, errno := range k.errnos {
				for skip := range most {
					pid := s.stub()
					s.arm(fault{k.call, errno, skip, 1})
					o.run()
					hits := s.disarm()
					hit[k.call] += hits
					what := fmt.Sprintf("%s of %d in a %s", errno, skip, o.name)
					r.works(what)
					if o.name != "restart" && s.stub() != pid {
						t.Errorf("the model's process has been lost after %s of %s", what, k.call)
					}
					if hits == 0 || i > 0 && skip >= 1 { // other errors take the same path
						break
					}
				}
			}
		}
		s.settled(before)
	}
	t.Logf("calls that failed: %v", hit)
	for _, k := range regionKinds {
		if hit[k.call] == 0 {
			t.Errorf("no call of %s was made to fail", k.call)
		}
	}
}
