package devices

import (
	"bytes"
	"os"
	"path/filepath"
)

const (
	driverLibrary = "libcuda.so.1"
	driverDevice  = "/dev/nvidiactl"
	loaderCache   = "/etc/ld.so.cache"
)

// loaderFolders are the loader's default directories.
var loaderFolders = []string{
	"/lib64", "/usr/lib64", "/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu",
	"/usr/lib/aarch64-linux-gnu", "/lib", "/usr/lib",
}

// Found reports whether this machine seems to have a CUDA driver: its library is in the loader's
// directories, or its device file exists. It takes microseconds and loads nothing.
func Found(getenv func(string) string) bool {
	return found(append(filepath.SplitList(getenv("LD_LIBRARY_PATH")), loaderFolders...), loaderCache, driverDevice)
}

func found(folders []string, cache, device string) bool {
	for _, folder := range folders {
		if exists(filepath.Join(folder, driverLibrary)) {
			return true
		}
	}
	// The cache names its libraries between zero bytes.
	text, err := os.ReadFile(cache) // bound: the machine's file
	return err == nil && bytes.Contains(text, []byte("\x00"+driverLibrary+"\x00")) || exists(device)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
