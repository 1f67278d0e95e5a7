package integration

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nereid-serving/nereid"
	"github.com/nereid-serving/nereid/internal/testkit"
	"golang.org/x/sys/unix"
)

// imageRoot is a root file system with the layout of the Dockerfile, in which programs run as in a
// container.
type imageRoot struct {
	t     *testing.T
	root  string
	paths string // paths of the base image
}

// makeImage creates an image root with a binary. It skips the test if this machine does not allow
// mounts.
func makeImage(t *testing.T, binary string, base ...string) *imageRoot {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root may mount what a container has")
	}
	if output, err := exec.Command("unshare", "--mount", "--pid", "--fork", "mount", "--make-rprivate", "/").CombinedOutput(); err != nil {
		t.Skipf("no namespaces of mounts and processes here: %v\n%s", err, output)
	}
	im := &imageRoot{t: t, root: t.TempDir(), paths: strings.Join(base, ":")}
	if output, err := exec.Command("../deploy/image/layout", binary, im.root).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return im
}

// line returns the command line that runs a program of the image as a user.
func (im *imageRoot) line(user, models string, program ...string) []string {
	uid, gid, _ := strings.Cut(user, ":")
	return append([]string{"unshare", "--mount", "--pid", "--fork", "--kill-child", "testdata/in_image.sh", im.root, uid, gid, models, im.paths}, program...)
}

// pythonBase returns the paths of this machine that the tests' Python needs. They replace a Python
// base image.
func pythonBase(t *testing.T, python string) []string {
	t.Helper()
	output, err := exec.Command(python, "-c", "import sys; print(sys.prefix, sys.base_prefix)").Output()
	if err != nil {
		t.Fatal(err)
	}
	paths := []string{"/bin", "/lib", "/lib64", "/usr/bin", "/usr/lib", "/usr/lib64"}
	for _, path := range strings.Fields(string(output)) {
		switch {
		case path == "/usr/local":
			t.Skip("the Python of the tests lies in /usr/local, where the image has its own files")
		case path != "/usr" && !slices.Contains(paths, path):
			paths = append(paths, path)
		}
	}
	return paths
}

// first returns the pid of the container's process 1.
func (s *runningServer) first() int {
	s.t.Helper()
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", s.cmd.Process.Pid, s.cmd.Process.Pid))
	if err != nil {
		s.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(children)))
	if err != nil {
		s.t.Fatalf("the children of unshare are %q, want one: %v", children, err)
	}
	return pid
}

// endAsInPod sends SIGTERM to process 1 and expects a graceful shutdown.
func (s *runningServer) endAsInPod() {
	s.t.Helper()
	all := s.descendants()
	_ = unix.Kill(s.first(), unix.SIGTERM)
	if status := s.wait(startLimit); status != 0 {
		s.t.Errorf("exit status %d after SIGTERM, want 0", status)
	}
	s.gone(all)
}

// zombie reports whether a descendant of the server is a zombie.
func (s *runningServer) zombie() bool {
	return slices.ContainsFunc(s.descendants(), func(pid int) bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err == nil && strings.HasPrefix(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " Z")
	})
}

// TestImageServes runs the server as process 1 of a container, in a read-only image root without
// /dev/shm. It must serve with the command lines of KServe, as the image's user and as another user
// of group 0, and of SageMaker. SIGTERM must stop it with status 0. No process that a model leaves
// behind may stay a zombie.
func TestImageServes(t *testing.T) {
	binary, err := buildServer()
	if err != nil {
		t.Fatal(err)
	}
	python := testkit.Python(t).Path
	models := writeFiles(t, map[string]string{
		"m/config.pbtxt": `backend: "python" input { name: "IN" data_type: TYPE_FP32 dims: [ 1 ] } output { name: "OUT" data_type: TYPE_STRING dims: [ 1 ] }`,
		"m/1/model.py": "import getpass, os, subprocess, tempfile\nassert getpass.getuser() == 'nereid'\ntempfile.TemporaryFile().close()\nsubprocess.run(['sh', '-c', 'true & true &'])\n" +
			returning(`pb_utils.Tensor("OUT", np.array([f"{os.getuid()}:{os.getgid()} {os.path.exists('/dev/shm')} {os.access('/', os.W_OK)}"], object))`),
	})
	const request = `{"inputs":[{"name":"IN","shape":[1],"datatype":"FP32","data":[1]}]}`
	kserve := []string{"nereid-entrypoint", "tritonserver", "--model-store=/mnt/models", "--grpc-port=9000", "--http-port=8080", "--allow-grpc=true", "--allow-http=true"}
	for _, user := range []string{"1000:1000", "54321:0"} {
		t.Run(strings.ReplaceAll(user, ":", " "), func(t *testing.T) {
			im := makeImage(t, binary, pythonBase(t, python)...)
			// The ports of launchProgram follow KServe's arguments, like the arguments of an
			// InferenceService.
			s := launchProgram(t, im.line(user, models, kserve...), python, "/mnt/models")
			s.waitReady()
			if _, body := s.request("POST", "/v2/models/m/infer", request); !strings.Contains(body, `"`+user+` False False"`) {
				t.Errorf("got %s, want a model of user %s that finds no /dev/shm and cannot write the root", body, user)
			}
			testkit.Eventually(t, startLimit, func() bool { return !s.zombie() })
			s.endAsInPod()
		})
	}
	t.Run("SageMaker", func(t *testing.T) {
		im := makeImage(t, binary, pythonBase(t, python)...)
		if err := os.MkdirAll(filepath.Join(im.root, "opt/ml"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("../../mnt/models", filepath.Join(im.root, "opt/ml/model")); err != nil {
			t.Fatal(err)
		}
		port := testkit.Port(t)
		t.Setenv("IMAGE_ENV", fmt.Sprintf("SAGEMAKER_BIND_TO_PORT=%d SAGEMAKER_TRITON_ADDITIONAL_ARGS=--backend-config=python,python-executable=%s", port, python))
		// The shell drops the flags of launchProgram, because SageMaker passes none.
		s := launchProgram(t, im.line("1000:1000", models, "nereid-entrypoint", "sh", "-c", "exec serve"), "", "/mnt/models")
		s.http = port
		s.until("healthy", func() bool {
			status, _, err := s.try("GET", "/ping", nil, nil)
			return err == nil && status == http.StatusOK
		})
		if status, body := s.request("POST", "/invocations", request); status != http.StatusOK || !strings.Contains(body, "1000:1000") {
			t.Errorf("got %d, %s", status, body)
		}
		s.endAsInPod()
	})
}

// TestImageOfTheBinaryAlone checks that an image with only a static binary and the files of the
// layout serves.
func TestImageOfTheBinaryAlone(t *testing.T) {
	testkit.Story(t)
	binary, err := filepath.Abs("../bin/nereid-under-test-static")
	if err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-trimpath", "-o", binary, "../cmd/nereid")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	im := makeImage(t, binary)
	empty := t.TempDir()
	for _, program := range []string{"nereid", "/opt/tritonserver/bin/tritonserver"} {
		line := im.line("1000:1000", empty, "nereid-entrypoint", program, "--version")
		if output, err := exec.Command(line[0], line[1:]...).CombinedOutput(); err != nil || !strings.HasPrefix(string(output), "nereid ") {
			t.Errorf("%s --version: error %v, %s", program, err, output)
		}
	}
	s := launchProgram(t, im.line("54321:0", empty, "nereid-entrypoint", "tritonserver", "--model-control-mode=explicit"), "", "/models")
	s.waitReady()
	if output, err := exec.Command(binary, "health", "--ready", fmt.Sprintf("127.0.0.1:%d", s.http)).CombinedOutput(); err != nil {
		t.Errorf("nereid health: %v\n%s", err, output)
	}
	// The image root has no /etc/hosts.
	inside := im.line("1000:1000", empty, "nereid", "health", fmt.Sprintf("localhost:%d", s.http))
	if output, err := exec.Command(inside[0], inside[1:]...).CombinedOutput(); err != nil {
		t.Errorf("nereid health in the image: %v\n%s", err, output)
	}
	s.endAsInPod()
}

// TestImageHasTimeZones checks that the image has the time zone database.
func TestImageHasTimeZones(t *testing.T) {
	output, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	zones, root := strings.TrimSpace(string(output))+"/lib/time/zoneinfo.zip", t.TempDir()
	if _, err := os.Stat(zones); err != nil {
		t.Skipf("this distribution of Go has no time zones: %v", err)
	}
	if output, err := exec.Command("../deploy/image/zones", zones, root).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	data, err := os.ReadFile(filepath.Join(root, "usr/share/zoneinfo/Europe/Berlin"))
	if err != nil {
		t.Fatal(err)
	}
	zone, err := time.LoadLocationFromTZData("Europe/Berlin", data)
	if err != nil {
		t.Fatal(err)
	}
	if name, offset := time.Unix(0, 0).In(zone).Zone(); name != "CET" || offset != 3600 {
		t.Errorf("got %s, %d s east of Greenwich, want CET and 3600", name, offset)
	}
}

// TestDockerfileIsThatOfTheLayout checks that the Dockerfile matches the layout script, because
// tests cannot run an image builder.
func TestDockerfileIsThatOfTheLayout(t *testing.T) {
	content, err := os.ReadFile("../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	text := string(content)
	for _, want := range []string{
		"deploy/image/layout bin/nereid /out", "deploy/image/zones ", "\nCOPY --from=build /zones/ /\n", "\nFROM scratch AS binary\n", "\nFROM ${PYTHON_IMAGE} AS python\n", "\nUSER 1000:1000\n", " HOME=/tmp USER=nereid ",
		"\nSTOPSIGNAL SIGTERM\n", "\nEXPOSE 8000 8001 8002\n", "\nENTRYPOINT [\"nereid-entrypoint\"]\n", `CMD ["nereid", "health"]`,
		`com.nvidia.tritonserver.version="` + nereid.ProtocolVersion + `"`, "TRITON_SERVER_VERSION=" + nereid.ProtocolVersion + "\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the Dockerfile lacks %q", want)
		}
	}
	goMod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	wanted := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(string(goMod))
	if has := regexp.MustCompile(`GO_IMAGE=golang:(\S+)`).FindStringSubmatch(text); wanted == nil || has == nil || has[1] != wanted[1] {
		t.Errorf("the image of Go is %q, and go.mod wants %q", has, wanted)
	}
}
