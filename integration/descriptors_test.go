package integration

import (
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
	"golang.org/x/sys/unix"
)

// TestFewDescriptorsKeepTheServerServing opens more idle connections than the server has
// descriptors. The server must still restart a stub and serve new clients.
func TestFewDescriptorsKeepTheServerServing(t *testing.T) {
	const descriptors, connections = 256, 1100
	repository := writeFiles(t, map[string]string{"m/config.pbtxt": oneFloat, "m/1/model.py": identityModel})
	s := launch(t, testkit.Python(t).Path, repository)
	few := unix.Rlimit{Cur: descriptors, Max: descriptors}
	if err := unix.Prlimit(s.cmd.Process.Pid, unix.RLIMIT_NOFILE, &few, nil); err != nil {
		t.Fatal(err)
	}
	s.waitReady()
	var idle []net.Conn
	defer func() {
		for _, c := range idle {
			_ = c.Close()
		}
	}()
	for i := range connections {
		c, err := net.Dial("tcp", "127.0.0.1:"+strconv.Itoa([]int{s.http, s.grpc, s.metrics}[i%3]))
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		idle = append(idle, c)
	}
	const body = `{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1]}]}`
	s.until("serving beside idle connections", func() bool {
		status, _, err := s.try("POST", "/v2/models/m/infer", nil, []byte(body))
		return err == nil && status == 200
	})
	stubs := s.stubs()
	if len(stubs) != 1 {
		t.Fatalf("got stubs %v, want one", stubs)
	}
	_ = unix.Kill(stubs[0], unix.SIGKILL)
	s.until("restarted", func() bool {
		now := s.stubs()
		return len(now) == 1 && now[0] != stubs[0]
	})
	if status, text := s.request("POST", "/v2/models/m/infer", body); status != 200 {
		t.Errorf("after the restart: got %d: %s", status, text)
	}
	// The server has closed the oldest connections.
	if n, err := idle[0].Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("the oldest connection: got %d bytes, %v; want its end", n, err)
	}
}

// TestModelsBeyondTheDescriptors loads more models than the server has descriptors for. Some must
// serve, and the index must give the reason for the others. After some models are unloaded, another
// must load.
func TestModelsBeyondTheDescriptors(t *testing.T) {
	const descriptors, models = 128, 20
	files := map[string]string{}
	for n := range models {
		files[fmt.Sprintf("m%02d/config.pbtxt", n)], files[fmt.Sprintf("m%02d/1/model.py", n)] = oneFloat, identityModel
	}
	s := launchBehind(t, []string{"/bin/sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$@"`, descriptors), "sh"}, testkit.Python(t).Path, writeFiles(t, files),
		"--exit-on-error=false", "--strict-readiness=false", "--model-control-mode=explicit", "--load-model=*")
	s.waitReady()
	const body = `{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1]}]}`
	var ready, refused []string
	for name, e := range s.index() {
		if e.State == "READY" {
			ready = append(ready, name)
			if status, text := s.request("POST", "/v2/models/"+name+"/infer", body); status != 200 {
				t.Errorf("%s is ready: got %d: %s", name, status, text)
			}
			continue
		}
		refused = append(refused, name)
		if !regexp.MustCompile(`No file descriptor is left|too many open files`).MatchString(e.Reason) {
			t.Errorf("%s is not ready for want of descriptors: got the reason %q", name, e.Reason)
		}
	}
	if len(ready) < 3 || len(refused) < 3 {
		t.Fatalf("%d models are ready and %d are not, want some of both", len(ready), len(refused))
	}
	for _, name := range ready[:3] {
		if status, text := s.request("POST", "/v2/repository/models/"+name+"/unload", ""); status != 200 {
			t.Fatalf("unload %s: got %d: %s", name, status, text)
		}
	}
	s.until("with room for another model", func() bool {
		status, _ := s.request("POST", "/v2/repository/models/"+refused[0]+"/load", "")
		return status == 200
	})
	if status, text := s.request("POST", "/v2/models/"+refused[0]+"/infer", body); status != 200 {
		t.Errorf("%s has been loaded: got %d: %s", refused[0], status, text)
	}
}
