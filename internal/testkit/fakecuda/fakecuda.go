// Package fakecuda builds a CUDA driver and an NVML without a device, libcuda.so.1 and
// libnvidia-ml.so.1, for machines without a GPU.
//
// A program with Dir in LD_LIBRARY_PATH sees two devices; driver/fake.h and nvml/nvml.c describe
// the environment variables that change that. UUID names the devices.
package fakecuda

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/nereid-serving/nereid/internal/testkit"
)

//go:embed driver/*.c driver/*.h nvml/*.c
var sources embed.FS

// libraries are built from the C files of their folders.
var libraries = map[string]string{"driver": "libcuda.so.1", "nvml": "libnvidia-ml.so.1"}

// Environment variables that the two read.
const (
	Devices = "FAKECUDA_DEVICES"
	Old     = "FAKECUDA_OLD"
	Fail    = "FAKECUDA_FAIL"
	Lost    = "FAKECUDA_LOST"
	Init    = "FAKECUDA_INIT"
	Control = "FAKENVML_CONTROL"
)

// UUID returns the UUID of a device, by its number without CUDA_VISIBLE_DEVICES.
func UUID(device int) string { return fmt.Sprintf("GPU-%08x-0000-0000-0000-000000000001", device) }

// Buildable reports whether there is a C compiler, without which Dir skips its test.
func Buildable() bool {
	_, err := exec.LookPath("cc")
	return err == nil
}

// Dir returns the folder of the libraries. It builds them if they are missing or older than their
// sources, and skips the test if there is no C compiler.
func Dir(t *testing.T) string {
	t.Helper()
	compiler, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("there is no C compiler, cc, which builds the fakes of libcuda.so.1 and libnvidia-ml.so.1")
	}
	sum := sha256.New()
	err = fs.WalkDir(sources, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := sources.ReadFile(path)
		fmt.Fprintf(sum, "%s %d\n%s", path, len(text), text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(testkit.Root(t), "bin")
	dir := filepath.Join(bin, "fakecuda-"+hex.EncodeToString(sum.Sum(nil)[:8]))
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	fresh, err := os.MkdirTemp(bin, "new-fakecuda-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(fresh)
	if err := os.CopyFS(fresh, sources); err != nil {
		t.Fatal(err)
	}
	for folder, library := range libraries {
		files, err := filepath.Glob(filepath.Join(fresh, folder, "*.c"))
		if err != nil {
			t.Fatal(err)
		}
		arguments := append([]string{
			"-std=gnu11", "-O1", "-g", "-Wall", "-Werror", "-fPIC", "-shared", "-Wl,-Bsymbolic", "-Wl,-soname," + library, "-o", filepath.Join(fresh, library),
		}, files...)
		if text, err := exec.Command(compiler, append(arguments, "-lpthread")...).CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", library, err, text)
		}
	}
	// Another test binary may have been faster.
	if err := os.Rename(fresh, dir); err != nil {
		if _, none := os.Stat(dir); none != nil {
			t.Fatal(err)
		}
	}
	return dir
}
