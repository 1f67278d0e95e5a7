package integration

import (
	"archive/zip"
	"bytes"
	"debug/elf"
	"encoding/json"
	"io/fs"
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

// releaseMachines are the architectures of a release.
var releaseMachines = map[string]struct {
	elf    elf.Machine
	python string // in the platform tags of a wheel
}{"amd64": {elf.EM_X86_64, "x86_64"}, "arm64": {elf.EM_AARCH64, "aarch64"}}

// makeRelease runs "make release" and returns the directory of the files. The test Misses a C
// compiler for the other architecture if it is neither installed nor installable. The files that
// "make build" made must stay the same.
func makeRelease(t *testing.T) string {
	t.Helper()
	root, dir := testkit.Root(t), filepath.Join(t.TempDir(), "dist")
	t.Setenv("REQUIRED", "1")
	for arch := range releaseMachines {
		if output, err := exec.Command("../.ci/accelerator", arch, t.TempDir()).CombinedOutput(); err != nil {
			testkit.Missing(t, "%s", output)
		}
	}
	built := map[string][]byte{"bin/nereid": nil, "stub/pb_stub/_accelerator.abi3.so": nil, "stub/pb_stub/_accelerator_t.so": nil}
	for name := range built {
		built[name], _ = os.ReadFile(filepath.Join(root, name))
	}
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	runTool(t, "make", "-C", root, "release", "DIST="+dir, "VERSION=1.2.3+abcdef0", "PYTHON="+testkit.Python(t).Path)
	for name, before := range built {
		if after, _ := os.ReadFile(filepath.Join(root, name)); !bytes.Equal(after, before) {
			t.Errorf("make release has changed %s", name)
		}
	}
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

// TestReleaseIsInstalledAndServes makes a release and checks the checksums and both wheels. It
// installs this machine's Debian package into a separate root and purges it. Its server must work,
// and systemd must accept its unit. The tarball must contain the same server, also as tritonserver.
func TestReleaseIsInstalledAndServes(t *testing.T) {
	testkit.Story(t)
	dir := makeRelease(t)
	checkSums(t, dir)
	for arch := range releaseMachines {
		checkWheel(t, dir, arch)
	}
	var bill struct {
		SPDXVersion string                               `json:"spdxVersion"`
		Packages    []struct{ Name, VersionInfo string } `json:"packages"`
	}
	text, err := os.ReadFile(filepath.Join(dir, "nereid-1.2.3+abcdef0-linux-"+runtime.GOARCH+".spdx.json"))
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
	runTool(t, "tar", "-xzf", filepath.Join(dir, "nereid-1.2.3+abcdef0-linux-"+runtime.GOARCH+".tar.gz"), "-C", unpacked, "--strip-components=1")
	if got := runTool(t, filepath.Join(unpacked, "bin", "tritonserver"), "--version"); !strings.HasPrefix(got, "nereid ") {
		t.Errorf("the tarball's server says %q", got)
	}

	deb := filepath.Join(dir, "nereid_1.2.3+abcdef0_"+runtime.GOARCH+".deb")
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

// checkSums verifies the checksums of a release, which must be those of all its files.
func checkSums(t *testing.T, dir string) {
	t.Helper()
	const version = "1.2.3+abcdef0"
	want := []string{"SHA256SUMS"}
	for arch, machine := range releaseMachines {
		want = append(want, "nereid-"+version+"-linux-"+arch+".tar.gz", "nereid-"+version+"-linux-"+arch+".spdx.json", "nereid_"+version+"_"+arch+".deb",
			strings.ReplaceAll("nereid_serving-"+version+"-py3-none-manylinux2014_ARCH.manylinux_2_17_ARCH.musllinux_1_1_ARCH.whl", "ARCH", machine.python))
	}
	slices.Sort(want)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, entry := range entries {
		got = append(got, entry.Name())
	}
	if !slices.Equal(got, want) {
		t.Errorf("files of the release: got %q, want %q", got, want)
	}
	// One line for each file, such as "nereid_1.2.3_amd64.deb: OK".
	checked := strings.TrimSpace(runTool(t, "sh", "-c", "cd '"+dir+"' && sha256sum --check --strict SHA256SUMS"))
	want = slices.DeleteFunc(want, func(name string) bool { return name == "SHA256SUMS" })
	if got := strings.Split(strings.ReplaceAll(checked, ": OK", ""), "\n"); !slices.Equal(got, want) {
		t.Errorf("SHA256SUMS: got %q, want %q", got, want)
	}
}

// checkWheel verifies that the server in the wheel of an architecture, and the accelerators in that
// server, are for that architecture. None may need a library or a symbol's version, because the
// wheel's platform tags promise that it runs with any glibc and with musl.
func checkWheel(t *testing.T, dir, arch string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*_"+releaseMachines[arch].python+".whl"))
	if err != nil || len(names) != 1 {
		t.Fatalf("wheels for %s: got %q, error %v, want one", arch, names, err)
	}
	wheel, err := zip.OpenReader(names[0])
	if err != nil {
		t.Fatal(err)
	}
	defer wheel.Close()
	server, err := fs.ReadFile(wheel, "nereid_serving-1.2.3+abcdef0.data/scripts/nereid")
	if err != nil {
		t.Fatal(err)
	}
	binaries := map[string][]byte{"server": server}
	for _, name := range []string{"_accelerator.abi3.so", "_accelerator_t.so"} {
		library, err := os.ReadFile(filepath.Join(testkit.Root(t), "bin", arch, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(server, library) {
			t.Errorf("%s: the server does not contain %s for %s", filepath.Base(names[0]), name, arch)
		}
		binaries[name] = library
	}
	for name, content := range binaries {
		file, err := elf.NewFile(bytes.NewReader(content))
		if err != nil {
			t.Errorf("%s for %s: %v", name, arch, err)
			continue
		}
		if file.Machine != releaseMachines[arch].elf {
			t.Errorf("%s for %s: got machine %v, want %v", name, arch, file.Machine, releaseMachines[arch].elf)
		}
		libraries, err := file.ImportedLibraries()
		if err != nil || len(libraries) > 0 {
			t.Errorf("%s for %s needs libraries %q, error %v", name, arch, libraries, err)
		}
		if file.SectionByType(elf.SHT_GNU_VERNEED) != nil {
			t.Errorf("%s for %s needs versions of symbols", name, arch)
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
