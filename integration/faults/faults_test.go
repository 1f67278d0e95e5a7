package faults

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// kinds are the system calls that can fail, with their errors and the number of calls that the Go
// runtime makes during startup. Those must succeed, or there is no program to test.
var kinds = []struct {
	call    string
	errnos  []string
	runtime int
}{
	{"memfd_create", []string{"EMFILE", "ENFILE", "ENOMEM"}, 0},
	{"ftruncate", []string{"ENOMEM"}, 0},
	{"fallocate", []string{"ENOSPC", "ENOMEM"}, 0},
	{"fchmod", []string{"EPERM"}, 0},
	{"fcntl", []string{"EMFILE", "EPERM"}, 3},
	{"mmap", []string{"ENOMEM", "EAGAIN"}, 0},
	{"pipe2", []string{"EMFILE", "ENFILE"}, 0},
	{"openat", []string{"EMFILE", "ENFILE", "ENOMEM"}, 0},
	{"newfstatat", []string{"ENOMEM"}, 0},
	{"getdents64", []string{"ENOMEM"}, 0},
	{"clone", []string{"EAGAIN", "ENOMEM"}, 0},
	{"execve", []string{"ENOMEM"}, 0},
	{"setpgid", []string{"EPERM"}, 0},
	{"pidfd_open", []string{"ENOSYS", "EPERM", "EMFILE"}, 0},
	{"kill", []string{"EPERM"}, 0},
	{"waitid", []string{"ENOSYS"}, 0},
	{"sendmsg", []string{"ENOMEM"}, 0},
	{"recvmsg", []string{"ENOMEM"}, 0},
	{"socketpair", []string{"EMFILE"}, 0},
	{"epoll_ctl", []string{"ENOMEM", "ENOSPC"}, 1},
	{"accept4", []string{"EMFILE", "ENFILE", "ENOMEM", "EPERM"}, 0},
	{"setsockopt", []string{"ENOMEM"}, 0},
	{"prctl", []string{"ENOSYS", "EPERM"}, 0},
}

func callNames() (names []string) {
	for _, k := range kinds {
		names = append(names, k.call)
	}
	return names
}

// most limits the number of failing calls of a kind within one operation.
const most = 5

// TestFaultsWhileServingAreSurvived makes each system call of a load, a restart, a growth and a
// connection fail in turn. The operation may fail or be retried. The server must survive, serve
// again, and hold no more resources than before.
func TestFaultsWhileServingAreSurvived(t *testing.T) {
	testkit.Story(t)
	s := launch(t, callNames())
	s.works("start")
	operations := []struct {
		name string
		run  func()
	}{
		{"load", func() {
			s.call(http.MethodPost, "/v2/repository/models/m/unload", "")
			s.call(http.MethodPost, "/v2/repository/models/m/load", "")
		}},
		{"restart", func() { s.kill(); s.infer(8) }},
		{"growth", func() { s.infer(3 << 20) }},
		{"connection", func() { s.call(http.MethodGet, "/v2/health/live", "") }},
	}
	again := func() { // a model that failed to load is retried only on request
		s.waitFor("the model is loaded", func() bool {
			// The load has no effect on a model that serves or is being restarted.
			status, _ := s.call(http.MethodPost, "/v2/repository/models/m/load", "")
			return status == http.StatusOK
		})
		s.works("again")
	}
	for _, o := range operations { // the first run creates everything that is created once
		o.run()
		again()
	}
	before := s.holds()
	tried := 0
	for _, o := range operations {
		for _, k := range kinds {
			for i, errno := range k.errnos {
				for skip := range most {
					s.arm(fault{k.call, errno, skip, 1})
					o.run()
					hits := s.disarm()
					again()
					tried += hits
					if hits == 0 || i > 0 && skip >= 1 { // other errors take the same path
						break
					}
				}
			}
		}
		s.settled(before)
	}
	t.Logf("%d calls failed", tried)
	if tried < 60 {
		t.Errorf("only %d calls were made to fail, want 60 at least", tried)
	}
}

// TestFaultsForAWhile makes all system calls that create a descriptor or reserve memory fail during
// a restart, a load and connections. Afterwards the server must recover by itself.
func TestFaultsForAWhile(t *testing.T) {
	s := launch(t, callNames())
	s.works("start")
	before := s.holds()
	for _, errno := range []string{"EMFILE", "ENOMEM"} {
		calls := []string{"memfd_create", "pipe2", "fcntl", "openat", "clone", "pidfd_open", "socketpair", "mmap", "fallocate"}
		var faults []fault
		for _, call := range calls {
			faults = append(faults, fault{call, errno, 0, -1})
		}
		s.arm(append(faults, fault{"accept4", errno, 0, 3})...)
		s.kill()
		s.client.Timeout = time.Second // a request may wait for the stub until its client gives up
		s.infer(8)
		s.client.Timeout = patience
		if status, reply := s.call(http.MethodPost, "/v2/repository/models/none/load", ""); status == http.StatusOK {
			t.Errorf("%s: a load of nothing got %s, want an error", errno, reply)
		}
		if hits := s.disarm(); hits < 3 {
			t.Errorf("%s: got %d calls that failed, want more", errno, hits)
		}
		s.works(errno)
		s.settled(before)
	}
}

// TestFaultsAtStartAreSurvivedOrNamed makes the first system call of each kind fail during startup.
// The server must start anyway or print the reason.
func TestFaultsAtStartAreSurvivedOrNamed(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.call, func(t *testing.T) {
			t.Parallel()
			s := launch(t, callNames(), fault{k.call, k.errnos[0], k.runtime, 1})
			up := false
			for !up && !s.over() {
				status, _ := s.call(http.MethodGet, "/v2/health/ready", "")
				up = status == http.StatusOK
			}
			if !up && !strings.Contains(strings.ToLower(s.text()), "error") {
				t.Errorf("the server did not start and said %q, want why", s.text())
			}
		})
	}
}

// TestNoDescriptorsAreLeft lowers the descriptor limit of a running server to zero, and then to
// less than it uses. The server must log the shortage and recover when the limit is raised.
func TestNoDescriptorsAreLeft(t *testing.T) {
	s := launch(t, []string{"memfd_create"})
	s.works("start")
	before := s.holds()
	var was unix.Rlimit
	if err := unix.Prlimit(s.pid, unix.RLIMIT_NOFILE, nil, &was); err != nil {
		t.Skipf("the limits of another process cannot be changed: %v", err)
	}
	for _, limit := range []uint64{0, uint64(before.files) - 6} {
		from := len(s.text())
		if err := unix.Prlimit(s.pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: was.Max}, nil); err != nil {
			t.Fatal(err)
		}
		if pid := s.stub(); pid != 0 {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		done := make(chan struct{})
		go func() { // its connection may have to wait for a free descriptor
			defer close(done)
			s.infer(8)
		}()
		s.waitFor("a shortage in the log", func() bool {
			return strings.Contains(s.text()[from:], "too many open files")
		})
		if err := unix.Prlimit(s.pid, unix.RLIMIT_NOFILE, &was, nil); err != nil {
			t.Fatal(err)
		}
		<-done
		s.works("descriptors are there again")
		s.settled(before)
	}
}
