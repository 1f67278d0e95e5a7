package integration

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
	"golang.org/x/sys/unix"
)

// makeRelease creates the tarball, the Debian package and the bill of materials of the server under
// test, and returns their directory.
func makeRelease(t *testing.T) string {
	t.Helper()
	binary, err := buildServer()
	if err != nil {
		t.Fatal(err)
	}
	goCommand := os.Getenv("GO")
	if goCommand == "" {
		goCommand = "go"
	}
	dir := t.TempDir()
	runTool(t, testkit.Python(t).Path, "../.ci/release", binary, "v1.2.3-4-gabcdef0", dir, runtime.GOARCH, goCommand, "1700000000")
	return dir
}

// runTool runs a program, which must succeed, and returns its output.
func runTool(t *testing.T, line ...string) string {
	t.Helper()
	output, err := exec.Command(line[0], line[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(line, " "), err, output)
	}
	return string(output)
}

// TestReleaseIsInstalledAndServes installs the Debian package into a separate root and purges it.
// Its server must work, and systemd must accept its unit. The tarball must contain the same server,
// also as tritonserver.
func TestReleaseIsInstalledAndServes(t *testing.T) {
	testkit.Story(t)
	dir := makeRelease(t)
	runTool(t, "sh", "-c", "cd '"+dir+"' && sha256sum --check --strict SHA256SUMS")
	var bill struct {
		SPDXVersion string                               `json:"spdxVersion"`
		Packages    []struct{ Name, VersionInfo string } `json:"packages"`
	}
	text, err := os.ReadFile(filepath.Join(dir, "nereid-1.2.3+4.gabcdef0-linux-"+runtime.GOARCH+".spdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &bill); err != nil || bill.SPDXVersion != "SPDX-2.3" {
		t.Errorf("the list of contents: version %q, error %v", bill.SPDXVersion, err)
	}
	for _, want := range []string{"nereid", "go", "google.golang.org/grpc"} {
		if !slices.ContainsFunc(bill.Packages, func(p struct{ Name, VersionInfo string }) bool { return p.Name == want && p.VersionInfo != "" }) {
			t.Errorf("the list of contents lacks %s with its version", want)
		}
	}
	unpacked := t.TempDir()
	runTool(t, "tar", "-xzf", filepath.Join(dir, "nereid-1.2.3+4.gabcdef0-linux-"+runtime.GOARCH+".tar.gz"), "-C", unpacked, "--strip-components=1")
	if got := runTool(t, filepath.Join(unpacked, "bin", "tritonserver"), "--version"); !strings.HasPrefix(got, "nereid ") {
		t.Errorf("the tarball's server says %q", got)
	}

	deb := filepath.Join(dir, "nereid_1.2.3+4.gabcdef0_"+runtime.GOARCH+".deb")
	root := t.TempDir()
	if _, err := exec.LookPath("dpkg"); err != nil {
		t.Skip("no dpkg: what the Debian package does is not tested")
	}
	if os.Getuid() != 0 {
		runTool(t, "dpkg-deb", "-x", deb, root) // without scripts, because only root may install
	} else {
		for _, folder := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers"} {
			if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for _, file := range []string{"status", "available"} {
			if err := os.WriteFile(filepath.Join(root, "var/lib/dpkg", file), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		runTool(t, "dpkg", "--root="+root, "--force-script-chrootless", "--install", deb)
		if got := runTool(t, "dpkg", "--root="+root, "--verify", "nereid"); got != "" {
			t.Errorf("dpkg --verify finds\n%s", got)
		}
	}
	for _, file := range []string{"usr/share/man/man1/nereid.1.gz", "usr/share/bash-completion/completions/nereid", "etc/default/nereid", "usr/share/doc/nereid/copyright"} {
		if info, err := os.Stat(filepath.Join(root, file)); err != nil || info.Size() == 0 || info.Mode() != 0o644 {
			t.Errorf("%s: %v, error %v", file, info, err)
		}
	}
	server := launchProgram(t, []string{filepath.Join(root, "usr/bin/nereid"), "tritonserver"}, testkit.Python(t).Path,
		writeFiles(t, map[string]string{"m/config.pbtxt": oneFloat, "m/1/model.py": identityModel}))
	server.waitReady()
	if status, body := server.request("POST", "/v2/models/m/infer", oneValue); status != 200 {
		t.Errorf("got %d, %s", status, body)
	}
	server.stop()
	checkUnit(t, root)
	if os.Getuid() == 0 {
		runTool(t, "dpkg", "--root="+root, "--force-script-chrootless", "--purge", "nereid")
		if err := unix.Access(filepath.Join(root, "usr/bin/nereid"), unix.F_OK); err == nil {
			t.Error("the server is still there after dpkg --purge")
		}
	}
}

// checkUnit verifies the unit in root with systemd and rates its sandboxing.
func checkUnit(t *testing.T, root string) {
	t.Helper()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Log("no systemd-analyze: the unit is not checked")
		return
	}
	unit := filepath.Join(root, "usr/lib/systemd/system/nereid.service")
	content, err := os.ReadFile(unit)
	if err != nil {
		t.Fatal(err)
	}
	// systemd checks the program of the unit on this machine, where it has another path.
	here := filepath.Join(t.TempDir(), "nereid.service")
	text := strings.ReplaceAll(string(content), "/usr/bin/nereid", filepath.Join(root, "usr/bin/nereid"))
	if err := os.WriteFile(here, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := runTool(t, "systemd-analyze", "verify", "--man=no", "--recursive-errors=no", here); strings.Contains(got, here) {
		t.Errorf("systemd-analyze verify says\n%s", got)
	}
	// The threshold is in tenths. 100 is a service without any sandboxing.
	runTool(t, "systemd-analyze", "security", "--offline=true", "--threshold=25", here)
}
