package cli

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// releaseStartup unmaps the pages of the executable. Half of them are needed only during startup.
// The kernel maps the others again, from the page cache, when they are needed.
func releaseStartup() error {
	if status, err := os.ReadFile("/proc/self/status"); err != nil || !bytes.Contains(status, []byte("\nTracerPid:\t0\n")) {
		return err // a debugger has its breakpoints in these pages
	}
	executable, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return err
	}
	defer maps.Close()
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		// 00400000-02a3c000 r-xp 00000000 00:27 1234   /path (proc_pid_maps(5))
		var first, end uintptr
		var access string
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s", &first, &end, &access); err != nil {
			return fmt.Errorf("read /proc/self/maps: %w", err)
		}
		if !strings.HasSuffix(lines.Text(), " "+executable) || strings.Contains(access, "w") {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, first, end-first, unix.MADV_DONTNEED); errno != 0 {
			return errno
		}
	}
	return lines.Err()
}
