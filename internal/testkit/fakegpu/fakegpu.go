// Package fakegpu builds stand-ins of the libraries by which devices are counted and
// measured, libcuda.so.1 and libnvidia-ml.so.1, for machines without a GPU.
//
// A program that has Dir in LD_LIBRARY_PATH sees two devices; the heads of the C files in
// testdata say which variables of the environment change that. UUID names the devices.
package fakegpu

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

var (
	//go:embed testdata/cuda.c
	cuda []byte
	//go:embed testdata/nvml.c
	nvml []byte
)

// The variables of the environment that the stand-ins read.
const (
	Devices = "NEREID_FAKE_CUDA_DEVICES"
	Init    = "NEREID_FAKE_CUDA_INIT"
	Control = "NEREID_FAKE_NVML_CONTROL"
)

// UUID is that of a device, by its number without CUDA_VISIBLE_DEVICES.
func UUID(device int) string {
	return fmt.Sprintf("GPU-fafafafa-fafa-fafa-fafa-fafafafafa%02x", device)
}

// Dir builds the stand-ins and returns their directory. It skips the test where there is no
// C compiler.
func Dir(t *testing.T) string {
	t.Helper()
	compiler, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("there is no C compiler, cc, which builds the stand-ins of libcuda.so.1 and libnvidia-ml.so.1")
	}
	dir := t.TempDir()
	for name, source := range map[string][]byte{"libcuda.so.1": cuda, "libnvidia-ml.so.1": nvml} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path+".c", source, 0o600); err != nil {
			t.Fatal(err)
		}
		if text, err := exec.Command(compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", path, path+".c").CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", name, err, text)
		}
	}
	return dir
}
