package integration

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

// readmeFile matches a block of the README whose first line names a file in a repository.
var readmeFile = regexp.MustCompile("(?s)```(?:python)?\n# models/([^\n]*)\n(.*?)```")

// readmeRequest matches the README's curl request to the first model.
var readmeRequest = regexp.MustCompile(`curl localhost:8000(/v2/models/greeter/infer) -d '([^']*)'`)

// TestREADMEsFirstModelIsServed checks that the README's first model works with the README's
// request.
func TestREADMEsFirstModelIsServed(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, m := range readmeFile.FindAllStringSubmatch(string(text), -1) {
		files[m[1]] = m[2]
	}
	request := readmeRequest.FindStringSubmatch(string(text))
	if len(files) != 2 || request == nil {
		t.Fatalf("README.md: got the files %v and the request %q, want config.pbtxt and model.py of greeter, and a curl", files, request)
	}
	s := start(t, testkit.Python(t).Path, writeFiles(t, files))
	status, answer := s.request("POST", request[1], request[2])
	if status != http.StatusOK || !strings.Contains(answer, `"data":["Hello Ada!"]`) {
		t.Errorf("got %d %s, want Hello Ada!", status, answer)
	}
}

// TestDemoLooksAtItsPortsFirst checks that "make demo" checks its ports before the build, and that
// the error names a port that is in use.
func TestDemoLooksAtItsPortsFirst(t *testing.T) {
	plan, err := exec.Command("make", "-C", "..", "--no-print-directory", "-n", "demo").CombinedOutput()
	ports, build := strings.Index(string(plan), ".ci/demo-ports"), strings.Index(string(plan), "build")
	if err != nil || ports < 0 || ports > build {
		t.Errorf("make -n demo: got error %v, the ports at %d, the build at %d, want the ports first:\n%s", err, ports, build, plan)
	}

	// Other programs, such as other tests, may be using the same ports.
	listener, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	taken := listener.Addr().(*net.TCPAddr).Port
	for _, test := range []struct{ port, want string }{
		{strconv.Itoa(taken), "port " + strconv.Itoa(taken) + " is not available: Address already in use. The demonstration needs the ports " +
			strconv.Itoa(taken) + " to " + strconv.Itoa(taken+3) + "; PORT=9000 make demo uses 9000 to 9003\n"},
		{"web", "PORT is 'web', want a number from 1 to 65532: the demonstration uses it and the next three ports\n"},
	} {
		cmd := exec.Command("../.ci/demo-ports", testkit.Python(t).Path)
		cmd.Env = append(os.Environ(), "PORT="+test.port)
		output, err := cmd.CombinedOutput()
		if err == nil || string(output) != test.want {
			t.Errorf("PORT=%s: got %q and error %v, want %q and an error", test.port, output, err, test.want)
		}
	}
}
